// Redsync on go-redis as a participant of the benchmark; the works and lines are described in bench/README.md.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("which work? One of pairs, contend, herd, hand, keep"))
	}
	work, settings := os.Args[1], newSettings(os.Args[2:])
	if reason := cannot(work, settings); reason != "" {
		reply, err := json.Marshal(map[string]string{"cannot": reason})
		must(err)
		fmt.Println(string(reply))
		return
	}
	orders := bufio.NewScanner(os.Stdin)
	p := newParticipant(settings, orders)
	switch work {
	case "pairs":
		p.pairs()
	case "contend":
		p.contend()
	case "herd":
		p.herd()
	case "hand":
		p.hand()
	}
	for orders.Scan() {
	}
}

// cannot says why this work cannot be done, if so.
func cannot(work string, settings settings) string {
	switch work {
	case "pairs", "contend", "herd", "hand":
	case "keep":
		return "a mutex of redsync does not renew itself"
	default:
		return "there is no work " + work
	}
	if kind := settings.text("kind", "lock"); kind != "lock" {
		return "redsync has no lock of kind " + kind
	}
	return ""
}

// must ends the program where it could not go on.
func must(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "redsync:", err)
	os.Exit(1)
}
