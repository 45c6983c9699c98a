// Redsync on go-redis as a participant of the benchmark; bench/README.md describes the protocol.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("the workload is missing: one of pairs, contend, herd, wakeup, hold"))
	}
	workload, settings := os.Args[1], newSettings(os.Args[2:])
	if reason := unsupported(workload, settings); reason != "" {
		reply, err := json.Marshal(map[string]string{"unsupported": reason})
		must(err)
		fmt.Println(string(reply))
		return
	}
	input := bufio.NewScanner(os.Stdin)
	p := newParticipant(settings, input)
	switch workload {
	case "pairs":
		p.pairs()
	case "contend":
		p.contend()
	case "herd":
		p.herd()
	case "wakeup":
		p.wakeUp()
	}
	for input.Scan() {
	}
}

// unsupported returns why the workload is not supported, or an empty string.
func unsupported(workload string, settings settings) string {
	switch workload {
	case "pairs", "contend", "herd", "wakeup":
	case "hold":
		return "redsync does not renew its mutexes"
	default:
		return "there is no workload " + workload
	}
	if kind := settings.text("kind", "lock"); kind != "lock" {
		return "redsync has no lock of kind " + kind
	}
	return ""
}

// must exits on an error.
func must(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "redsync:", err)
	os.Exit(1)
}
