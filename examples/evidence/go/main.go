// Command checkpoint reads a checkpoint of a sidecar's journal, as it is handed over, by Go's own package for signed
// notes: what monitors of public logs are built with.
//
//	checkpoint 'fumehood/0a1b+5e0c7d29+AbC…' <checkpoint
//
// The argument is a line of the state folder's journal.pub, from the log's operator and not from the log. It prints the
// log's name, its size and its root, and fails where the key has not signed them.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A note is a few hundred bytes long; one with many cosignatures, a few thousand.
const maxNoteBytes = 1 << 16

func main() {
	if len(os.Args) != 2 {
		fail("usage: checkpoint PUBLIC-KEY <checkpoint")
	}
	verifier, err := note.NewVerifier(strings.TrimSpace(os.Args[1]))
	if err != nil {
		fail(err.Error())
	}
	message, err := io.ReadAll(io.LimitReader(os.Stdin, maxNoteBytes))
	if err != nil {
		fail(err.Error())
	}
	opened, err := note.Open(message, note.VerifierList(verifier))
	if err != nil {
		fail(err.Error())
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 {
		fail("the note is no checkpoint")
	}
	fmt.Printf("log %s, size %s, root %s, signed by %s\n", lines[0], lines[1], lines[2], opened.Sigs[0].Name)
}

func fail(problem string) {
	fmt.Fprintln(os.Stderr, problem)
	os.Exit(1)
}
