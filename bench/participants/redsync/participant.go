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

// participant does the works. A task is a goroutine; all share one client with its default pool. The mutexes have
// redsync's defaults, which are to try again after 50 to 250 ms; only the number of tries has no end.
type participant struct {
	settings settings
	orders   *bufio.Scanner
	redsync  *redsync.Redsync
	tally    *tally
	name     string
	tasks    int
	turns    int64
	limit    time.Duration
	lease    time.Duration
}

func newParticipant(settings settings, orders *bufio.Scanner) *participant {
	address := fmt.Sprintf("127.0.0.1:%d", settings.number("port", 6379))
	client := redis.NewClient(&redis.Options{Addr: address})
	// Without a server, the endless tries would hide it.
	must(client.Ping(context.Background()).Err())
	tasks := int(settings.number("tasks", 1))
	return &participant{
		settings: settings,
		orders:   orders,
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
	p.readyAndGo()
	start := time.Now()
	p.start(func(task int) {
		mutex := p.mutex(fmt.Sprintf("%s:%d", p.name, task))
		share := p.turns / int64(p.tasks)
		if int64(task) < p.turns%int64(p.tasks) {
			share++
		}
		for range share {
			asked := time.Now()
			err := mutex.Lock()
			if err == nil {
				err = giveBack(mutex)
			}
			switch {
			case err != nil:
				p.tally.error(err)
			case p.tasks == 1:
				p.tally.timed(task, time.Since(asked))
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
	p.readyAndGo()
	start := time.Now()
	// Who waits when the time is over still has its turn.
	p.start(func(task int) {
		mutex := p.mutex(p.name)
		for time.Since(start) < p.limit && left.Add(-1) >= 0 {
			asked := time.Now()
			if err := mutex.Lock(); err != nil {
				p.tally.error(err)
				continue
			}
			waited := time.Since(asked)
			if err := countUp(counter); err != nil {
				p.tally.error(err)
			} else {
				p.tally.timed(task, waited)
			}
			if err := giveBack(mutex); err != nil {
				p.tally.error(err)
			}
		}
	}).Wait()
	p.tally.report(start)
}

func (p *participant) herd() {
	p.warmUp()
	p.readyAndGo()
	held := p.mutex(p.name)
	must(held.Lock())
	var givenBack atomic.Pointer[time.Time]
	var waiting atomic.Int64
	waiting.Store(int64(p.tasks))
	waiters := p.start(func(task int) {
		mutex := p.mutex(p.name)
		if err := mutex.Lock(); err != nil {
			p.tally.error(err)
			return
		}
		granted := time.Now()
		if since := givenBack.Load(); since == nil {
			p.tally.error(errors.New("granted while another held it"))
		} else {
			p.tally.timed(task, granted.Sub(*since))
		}
		if err := giveBack(mutex); err != nil {
			p.tally.error(err)
		}
		waiting.Add(-1)
	})
	time.Sleep(time.Duration(p.settings.number("hold_ms", 1000)) * time.Millisecond)
	start := time.Now()
	givenBack.Store(&start)
	must(giveBack(held))
	done := make(chan struct{})
	go func() {
		waiters.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(p.limit):
	}
	if late := waiting.Load(); late > 0 {
		p.tally.error(fmt.Errorf("%d tasks were not done in time", late))
	}
	p.tally.report(start)
}

func (p *participant) hand() {
	p.warmUp()
	mutex := p.mutex(p.name)
	fmt.Println("ready")
	for p.orders.Scan() {
		switch p.orders.Text() {
		case "lock":
			must(mutex.Lock())
			fmt.Println("ok")
		case "unlock":
			before := monotonic()
			must(giveBack(mutex))
			fmt.Println(before)
		case "wait":
			fmt.Println("waiting")
			must(mutex.Lock())
			granted := monotonic()
			must(giveBack(mutex))
			fmt.Println(granted)
		}
	}
}

func (p *participant) warmUp() {
	mutex := p.mutex(p.name + ":warm")
	for range p.settings.number("warm_up", 0) {
		must(mutex.Lock())
		must(giveBack(mutex))
	}
}

func (p *participant) readyAndGo() {
	fmt.Println("ready")
	p.orders.Scan()
}

// start starts all tasks; the answer can be waited for until all are done.
func (p *participant) start(work func(task int)) *sync.WaitGroup {
	var all sync.WaitGroup
	for task := range p.tasks {
		all.Go(func() { work(task) })
	}
	return &all
}

func giveBack(mutex *redsync.Mutex) error {
	given, err := mutex.Unlock()
	if err == nil && !given {
		err = errors.New("the lock was another's when it was given back")
	}
	return err
}

func countUp(counter *os.File) error {
	var bytes [8]byte
	if _, err := counter.ReadAt(bytes[:], 0); err != nil {
		return err
	}
	runtime.Gosched()
	binary.LittleEndian.PutUint64(bytes[:], binary.LittleEndian.Uint64(bytes[:])+1)
	_, err := counter.WriteAt(bytes[:], 0)
	return err
}

// monotonic gives CLOCK_MONOTONIC, which the times of other processes are compared with.
func monotonic() int64 {
	var now unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano()
}
