// Command nomanifest copies a jar without its manifest. The manifests of Debian's jars have a Class-Path with absolute paths. Because of
// these paths, a jar that was unpacked in another place would load the installed jars.
package main

import (
	"archive/zip"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: nomanifest from.jar to.jar")
		os.Exit(2)
	}
	if err := strip(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "nomanifest:", err)
		os.Exit(1)
	}
}

func strip(from, to string) error {
	jar, err := zip.OpenReader(from)
	if err != nil {
		return err
	}
	defer jar.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	w := zip.NewWriter(out)
	for _, f := range jar.File {
		if f.Name == "META-INF/MANIFEST.MF" {
			continue
		}
		if err := w.Copy(f); err != nil {
			return err
		}
	}
	return w.Close()
}
