package command

import (
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
)

// An Address is the location of a store and the credentials for it. Both come from flags and the environment. A password never comes from
// the command line, because every user of the machine can read the command line.
type Address struct {
	URL     string
	Scheme  string        // the scheme of the URL
	User    *url.Userinfo // the user in the URL; nil if there is none
	Servers string        // the rest of the URL
	TLS     TLS

	flag     string   // the URL from the flag -store
	authFile string   // the file from the flag -auth-file
	secrets  []string // the secrets in the URL, each with the separator before it, so that mask does not hide the same characters elsewhere
}

// storeVar is the name of the environment variable with the URL. It is used if -store is not given.
const storeVar = "TIERLOCK_STORE"

func (a *Address) flags(flags *flag.FlagSet) {
	flags.StringVar(&a.flag, "store", a.flag, "`URL` of the store, see tierlock help (default $TIERLOCK_STORE)")
	flags.StringVar(&a.authFile, "auth-file", a.authFile, "`file` with credentials (default $TIERLOCK_AUTH)")
	a.TLS.flags(flags)
}

// find returns the store of the URL. Errors do not quote the URL, because it may contain a secret.
func (a *Address) find(stores []*Store) (*Store, error) {
	source := "-store"
	if a.URL = a.flag; a.URL == "" {
		a.URL, source = os.Getenv(storeVar), storeVar
	}
	if a.URL == "" {
		return nil, fmt.Errorf("no store; give -store URL or set %s: %s", storeVar, forms(stores))
	}
	scheme, rest, found := strings.Cut(a.URL, "://")
	if a.Scheme = scheme; !found {
		return nil, fmt.Errorf("%s has no scheme; want %s", source, forms(stores))
	}
	for _, s := range stores {
		if !s.has(scheme) {
			continue
		}
		if err := a.split(rest); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		if source == "-store" && len(a.secrets) > 0 {
			return nil, fmt.Errorf("-store has a password, and every user of the machine can read a command line; set %s to this URL "+
				"instead, or leave the password out and put %s into TIERLOCK_AUTH or a file for -auth-file", storeVar, s.Auth)
		}
		if s.NoTLS != "" && a.TLS != (TLS{}) {
			return nil, fmt.Errorf("the -tls flags are not for %s; %s", s.Name, s.NoTLS)
		}
		return s, a.mask(s.Check(a))
	}
	return nil, fmt.Errorf("%s has the scheme %q, which belongs to no store; want %s", source, scheme, forms(stores))
}

// split parses the part of the URL after the scheme. It keeps the secrets for [Address.mask].
func (a *Address) split(rest string) error {
	servers := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		servers = rest[:end]
	}
	at := strings.LastIndexByte(servers, '@')
	a.Servers = rest[at+1:]
	if strings.Contains(a.Servers, "@") {
		return errors.New("the URL has an @ after the servers; in a password, write @ as %40, and / as %2F")
	}
	if at >= 0 {
		user, password, found := strings.Cut(rest[:at], ":")
		name, err := url.PathUnescape(user)
		secret, other := url.PathUnescape(password)
		if err != nil || other != nil {
			return errors.New("the user or the password has a % that begins no escape; write this % as %25")
		}
		if a.User = url.User(name); found {
			a.User = url.UserPassword(name, secret)
		}
		if password != "" {
			a.secrets = append(a.secrets, ":"+password)
		}
	}
	_, query, _ := strings.Cut(a.Servers, "?")
	for pair := range strings.SplitSeq(query, "&") {
		if key, value, _ := strings.Cut(pair, "="); strings.Contains(key, "password") && value != "" {
			a.secrets = append(a.secrets, "="+value)
		}
	}
	return nil
}

// Login returns the user and the password from -auth-file or TIERLOCK_AUTH. If neither is given, it returns those in the URL, or nil if the
// URL has none.
func (a *Address) Login() (*url.Userinfo, error) {
	text, source, err := a.Credentials()
	if text = strings.TrimSpace(text); text == "" || err != nil {
		return a.User, err
	}
	user, password, found := strings.Cut(text, ":")
	if !found { // the text is not quoted, because it may be a secret
		return nil, fmt.Errorf("%s: want user:password", source)
	}
	return url.UserPassword(user, password), nil
}

// Credentials returns the content of -auth-file or TIERLOCK_AUTH, and the name of its source. If neither is given, text is "".
func (a *Address) Credentials() (text, source string, err error) {
	if a.authFile == "" {
		return os.Getenv("TIERLOCK_AUTH"), "TIERLOCK_AUTH", nil
	}
	content, err := os.ReadFile(a.authFile)
	if err != nil {
		return "", "", fmt.Errorf("-auth-file: %w", err)
	}
	return string(content), a.authFile, nil
}

// mask removes the secrets of the URL from the text of an error, because clients quote a URL that they cannot parse.
func (a *Address) mask(err error) error {
	if err == nil || len(a.secrets) == 0 {
		return err
	}
	text := err.Error()
	for _, secret := range a.secrets {
		quoted := strconv.Quote(secret)
		for _, form := range []string{secret, quoted[1 : len(quoted)-1]} {
			text = strings.ReplaceAll(text, form, secret[:1]+"xxxxx")
		}
	}
	return masked{err, text}
}

// A masked is an error whose text has no secrets.
type masked struct {
	error
	text string
}

func (m masked) Error() string { return m.text }
func (m masked) Unwrap() error { return m.error }

// The function forms lists an example URL of each store.
func forms(stores []*Store) string {
	var all []string
	for _, s := range stores {
		all = append(all, s.Example)
	}
	return strings.Join(all, ", ")
}
