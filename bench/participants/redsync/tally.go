package main

import (
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// tally holds the counts of all tasks. Each task has counts of its own, whose lock is uncontended until the report.
type tally struct {
	tasks []taskTally

	guard      sync.Mutex
	errors     int64
	firstError string
}

type taskTally struct {
	guard sync.Mutex
	turns int64
	nanos []int64
}

func newTally(tasks int) *tally {
	return &tally{tasks: make([]taskTally, tasks)}
}

// turn counts a grant without its time.
func (t *tally) turn(task int) {
	mine := &t.tasks[task]
	mine.guard.Lock()
	defer mine.guard.Unlock()
	mine.turns++
}

// timed counts a grant with its time.
func (t *tally) timed(task int, took time.Duration) {
	mine := &t.tasks[task]
	mine.guard.Lock()
	defer mine.guard.Unlock()
	mine.turns++
	mine.nanos = append(mine.nanos, took.Nanoseconds())
}

func (t *tally) error(err error) {
	t.guard.Lock()
	defer t.guard.Unlock()
	if t.errors == 0 {
		t.firstError = err.Error()
	}
	t.errors++
}

// report prints the report as one line of JSON.
func (t *tally) report(start time.Time) {
	seconds := time.Since(start).Seconds()
	t.guard.Lock()
	defer t.guard.Unlock()
	reply := struct {
		Turns      int64    `json:"turns"`
		Seconds    float64  `json:"seconds"`
		Errors     int64    `json:"errors"`
		FirstError string   `json:"first_error"`
		PerTask    []int64  `json:"per_task"`
		Nanos      []int64  `json:"nanos"`
		Direct     []string `json:"direct"`
	}{
		Seconds:    seconds,
		Errors:     t.errors,
		FirstError: t.firstError,
		PerTask:    []int64{},
		Nanos:      []int64{},
		Direct:     []string{"set"},
	}
	for task := range t.tasks {
		its := &t.tasks[task]
		its.guard.Lock()
		reply.Turns += its.turns
		reply.PerTask = append(reply.PerTask, its.turns)
		reply.Nanos = append(reply.Nanos, its.nanos...)
		its.guard.Unlock()
	}
	line, err := json.Marshal(reply)
	must(err)
	fmt.Println(string(line))
}
