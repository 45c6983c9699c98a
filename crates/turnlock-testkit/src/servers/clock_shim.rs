//! A shifted wall clock for a process, by a small preloaded library.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::servers::build_cache;

/// Shifts the wall clock by `TURNLOCK_CLOCK_SHIFT` seconds.
///
/// The first eight bytes of the file `TURNLOCK_CLOCK_STEP` are added; they may change at any time. Monotonic
/// clocks are not shifted.
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
    void *mapped = mmap(0, sizeof *step, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) step = mapped;
    close(file);
}

static long shift(void) {
    const char *text = getenv("TURNLOCK_CLOCK_SHIFT");
    return (text ? atol(text) : 0) + (step ? *step : 0);
}

int gettimeofday(struct timeval *now, void *zone) {
    int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
    int result = real(now, zone);
    now->tv_sec += shift();
    return result;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += shift();
    return result;
}

time_t time(time_t *out) {
    struct timeval now;
    gettimeofday(&now, 0);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
"#;

/// The environment variable with the shift in seconds.
pub(crate) const VARIABLE: &str = "TURNLOCK_CLOCK_SHIFT";

/// The environment variable with the path of the file with a further shift.
pub(crate) const STEP_VARIABLE: &str = "TURNLOCK_CLOCK_STEP";

/// The file name of the library.
const LIBRARY: &str = "clock.so";

/// Returns the reason why clocks cannot be shifted on this machine; `None` if they can.
pub(crate) fn missing() -> Option<String> {
    if !cfg!(target_os = "linux") {
        return Some("clocks can be shifted on Linux only".to_owned());
    }
    match Command::new("cc").arg("--version").output() {
        Ok(output) if output.status.success() => None,
        _ => Some("`cc`, which builds the library that shifts a clock, cannot be run".to_owned()),
    }
}

/// Returns the path of the library, which is built once per machine.
pub(crate) fn library() -> PathBuf {
    let built = build_cache::build_once("clock-shim", SOURCE.as_bytes(), |dir| {
        build(dir);
        Ok(())
    });
    built.expect("a failed build panics").join(LIBRARY)
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
