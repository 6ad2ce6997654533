package certmagiclock_test

import (
	"context"
	"log"
	"net/http"
	"os"

	"github.com/caddyserver/certmagic"

	"github.com/tierlock/tierlock/contrib/certmagiclock"
	"github.com/tierlock/tierlock/zklock"
)

func ExampleNew() {
	locks, err := zklock.Dial(context.Background(), os.Getenv("ZK_SERVERS"))
	if err != nil {
		log.Fatal(err)
	}
	defer locks.Close()
	disk := &certmagic.FileStorage{Path: "/mnt/shared/certificates"} // of all processes
	certmagic.Default.Storage = certmagiclock.New(disk, locks, "/certmagic")
	log.Print(certmagic.HTTPS([]string{"example.com"}, http.NotFoundHandler()))
}
