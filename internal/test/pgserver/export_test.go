package pgserver

// Psql returns the path of the psql that belongs to the servers.
func Psql() (string, error) {
	i, err := find()
	if err != nil {
		return "", err
	}
	return i.run("psql").Path, nil
}
