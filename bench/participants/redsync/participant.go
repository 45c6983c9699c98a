package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// participant runs the workloads. A task is a goroutine; all share one client with its default pool. The mutexes have
// redsync's defaults, which retry after 50 to 250 ms; only the number of retries is unlimited.
type participant struct {
	settings settings
	input    *bufio.Scanner
	redsync  *redsync.Redsync
	tally    *tally
	name     string
	tasks    int
	turns    int64
	limit    time.Duration
	lease    time.Duration
}

func newParticipant(settings settings, input *bufio.Scanner) *participant {
	address := fmt.Sprintf("127.0.0.1:%d", settings.number("port", 6379))
	client := redis.NewClient(&redis.Options{Addr: address})
	// Unlimited retries would hide a missing server.
	must(client.Ping(context.Background()).Err())
	tasks := int(settings.number("tasks", 1))
	return &participant{
		settings: settings,
		input:    input,
		redsync:  redsync.New(goredis.NewPool(client)),
		tally:    newTally(tasks),
		name:     settings.text("lock", "lock"),
		tasks:    tasks,
		turns:    settings.number("turns", 0),
		limit:    time.Duration(settings.number("seconds", 10)) * time.Second,
		lease:    time.Duration(settings.number("lease_ms", 30_000)) * time.Millisecond,
	}
}

func (p *participant) mutex(name string) *redsync.Mutex {
	return p.redsync.NewMutex(name, redsync.WithExpiry(p.lease), redsync.WithTries(math.MaxInt))
}

func (p *participant) pairs() {
	p.warmUp()
	p.readyAndWait()
	start := time.Now()
	p.start(func(task int) {
		mutex := p.mutex(fmt.Sprintf("%s:%d", p.name, task))
		share := p.turns / int64(p.tasks)
		if int64(task) < p.turns%int64(p.tasks) {
			share++
		}
		for range share {
			requested := time.Now()
			err := mutex.Lock()
			if err == nil {
				err = release(mutex)
			}
			switch {
			case err != nil:
				p.tally.error(err)
			case p.tasks == 1:
				p.tally.timed(task, time.Since(requested))
			default:
				p.tally.turn(task)
			}
		}
	}).Wait()
	p.tally.report(start)
}

func (p *participant) contend() {
	counter, err := os.OpenFile(p.settings.text("counter", ""), os.O_RDWR, 0)
	must(err)
	var left atomic.Int64
	left.Store(p.turns)
	if p.turns == 0 {
		left.Store(math.MaxInt64)
	}
	p.warmUp()
	p.readyAndWait()
	start := time.Now()
	// A task that waits when the time is over still acquires the lock once.
	p.start(func(task int) {
		mutex := p.mutex(p.name)
		for time.Since(start) < p.limit && left.Add(-1) >= 0 {
			requested := time.Now()
			if err := mutex.Lock(); err != nil {
				p.tally.error(err)
				continue
			}
			waited := time.Since(requested)
			if err := increment(counter); err != nil {
				p.tally.error(err)
			} else {
				p.tally.timed(task, waited)
			}
			if err := release(mutex); err != nil {
				p.tally.error(err)
			}
		}
	}).Wait()
	p.tally.report(start)
}

func (p *participant) herd() {
	p.warmUp()
	p.readyAndWait()
	held := p.mutex(p.name)
	must(held.Lock())
	var releasedAt atomic.Pointer[time.Time]
	var waiting atomic.Int64
	waiting.Store(int64(p.tasks))
	waiters := p.start(func(task int) {
		mutex := p.mutex(p.name)
		if err := mutex.Lock(); err != nil {
			p.tally.error(err)
			return
		}
		granted := time.Now()
		if since := releasedAt.Load(); since == nil {
			p.tally.error(errors.New("granted while it was held"))
		} else {
			p.tally.timed(task, granted.Sub(*since))
		}
		if err := release(mutex); err != nil {
			p.tally.error(err)
		}
		waiting.Add(-1)
	})
	time.Sleep(time.Duration(p.settings.number("hold_ms", 1000)) * time.Millisecond)
	start := time.Now()
	releasedAt.Store(&start)
	must(release(held))
	done := make(chan struct{})
	go func() {
		waiters.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(p.limit):
	}
	if unfinished := waiting.Load(); unfinished > 0 {
		p.tally.error(fmt.Errorf("%d tasks did not finish in time", unfinished))
	}
	p.tally.report(start)
}

func (p *participant) wakeUp() {
	p.warmUp()
	mutex := p.mutex(p.name)
	fmt.Println("ready")
	for p.input.Scan() {
		switch p.input.Text() {
		case "lock":
			must(mutex.Lock())
			fmt.Println("ok")
		case "unlock":
			before := monotonic()
			must(release(mutex))
			fmt.Println(before)
		case "wait":
			fmt.Println("waiting")
			must(mutex.Lock())
			granted := monotonic()
			must(release(mutex))
			fmt.Println(granted)
		}
	}
}

func (p *participant) warmUp() {
	mutex := p.mutex(p.name + ":warm")
	for range p.settings.number("warm_up", 0) {
		must(mutex.Lock())
		must(release(mutex))
	}
}

func (p *participant) readyAndWait() {
	fmt.Println("ready")
	p.input.Scan()
}

// start starts all tasks, and returns a group to wait for.
func (p *participant) start(body func(task int)) *sync.WaitGroup {
	var all sync.WaitGroup
	for task := range p.tasks {
		all.Go(func() { body(task) })
	}
	return &all
}

func release(mutex *redsync.Mutex) error {
	released, err := mutex.Unlock()
	if err == nil && !released {
		err = errors.New("the lock was not held any more when it was released")
	}
	return err
}

func increment(counter *os.File) error {
	var bytes [8]byte
	if _, err := counter.ReadAt(bytes[:], 0); err != nil {
		return err
	}
	runtime.Gosched()
	binary.LittleEndian.PutUint64(bytes[:], binary.LittleEndian.Uint64(bytes[:])+1)
	_, err := counter.WriteAt(bytes[:], 0)
	return err
}

// monotonic returns CLOCK_MONOTONIC, which is comparable between processes.
func monotonic() int64 {
	var now unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano()
}
