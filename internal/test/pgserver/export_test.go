package pgserver

// Psql is the client that belongs to the servers.
func Psql() (string, error) {
	i, err := find()
	if err != nil {
		return "", err
	}
	return i.run("psql").Path, nil
}
