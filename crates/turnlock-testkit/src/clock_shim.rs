//! A wrong clock for a process, by a small library that is loaded before the C library.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::interop::workshop;

/// Shifts the wall clock by `TURNLOCK_CLOCK_SHIFT` seconds, and by as many more as the first eight bytes of the file
/// `TURNLOCK_CLOCK_STEP` say at that moment. Clocks that only count time are left alone.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *step;

__attribute__((constructor)) static void map_step(void) {
    const char *path = getenv("TURNLOCK_CLOCK_STEP");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *place = mmap(0, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED) step = place;
    close(file);
}

static long shift(void) {
    const char *text = getenv("TURNLOCK_CLOCK_SHIFT");
    return (text ? atol(text) : 0) + (step ? *step : 0);
}

int gettimeofday(struct timeval *now, void *zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int outcome = real(now, zone);
    now->tv_sec += shift();
    return outcome;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int outcome = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += shift();
    return outcome;
}

time_t time(time_t *place) {
    struct timeval now;
    gettimeofday(&now, 0);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The name of the variable that says how far to shift.
pub(crate) const VARIABLE: &str = "TURNLOCK_CLOCK_SHIFT";

/// The name of the variable that names the file with a further shift, which may change while the process runs.
pub(crate) const STEP_VARIABLE: &str = "TURNLOCK_CLOCK_STEP";

/// The name of the file that is built.
const LIBRARY: &str = "clock.so";

/// Why no server with a wrong clock can be had on this machine, or `None` when it can.
pub(crate) fn missing() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("clocks can be shifted on Linux only".to_owned());
    }
    match Command::new("cc").arg("--version").output() {
        Ok(output) if output.status.success() => None,
        _ => Some("`cc` cannot be run, to build what shifts a clock".to_owned()),
    }
}

/// The library, which is built once for a machine.
pub(crate) fn library() -> PathBuf {
    let built = workshop::once("clock-shim", SOURCE.as_bytes(), |dir| {
        build(dir);
        Ok(())
    });
    built.expect("a failure to build panics").join(LIBRARY)
}

/// Builds the library in `dir`.
fn build(dir: &Path) {
    let (source, library) = (dir.join("clock.c"), dir.join(LIBRARY));
    std::fs::write(&source, SOURCE).expect("the source can be written");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl");
    let status = cc.status().expect("cc can be run");
    assert!(status.success(), "{cc:?} failed: {status}");
}
