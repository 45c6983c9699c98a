//! Spawns the command. On Linux, the kernel kills it when the spawning thread ends.
//!
//! Only the forked child itself can ask for that, and tell its pid before exec, so some code has to run there between fork
//! and exec.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Command;

use tokio::process::Child;

/// Spawns a command line with inherited standard streams. A variable without a value is removed.
///
/// Blocks until the command is executed, which takes long if its file system does not reply. Before that, its pid is
/// written to `pid_pipe`. Also returns a child that is killed before it executes the command. All signals of the calling
/// thread are blocked from now on, and on Linux, the kernel kills the command when that thread ends.
pub(super) fn spawn(
    command_line: &[OsString],
    variables: &[(&str, Option<String>)],
    pid_pipe: OwnedFd,
) -> io::Result<Child> {
    let (program, arguments) = command_line.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command.args(arguments);
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    forked::prepare(&mut command, rustix::process::getpid(), pid_pipe);
    // The command must not run on without its lock if this program fails.
    tokio::process::Command::from(command).kill_on_drop(true).spawn()
}

#[expect(unsafe_code, reason = "code between fork and exec, and signal masks: no safe interface has them")]
mod forked {
    use std::io;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::ptr;

    use rustix::io::Errno;
    use rustix::process::{Pid, getpid, getppid};

    use crate::session::signals::HANDLED;

    /// Makes the forked child of the process `parent` write its pid, and die with the calling thread.
    pub(super) fn prepare(command: &mut Command, parent: Pid, pid_pipe: OwnedFd) {
        let signal_mask = block_signals();
        let before_exec = move || before_exec(parent, pid_pipe.as_fd(), &signal_mask);
        // SAFETY: this process has several threads, so the forked child may only make async-signal-safe calls. The closure
        // makes system calls and calls that POSIX lists as such; it does not allocate, lock or panic.
        unsafe { command.pre_exec(before_exec) };
    }

    /// Blocks all signals of this thread, and returns its mask from before.
    ///
    /// Until exec, the child has the signal handlers of this program. A signal that they would consume stays pending.
    fn block_signals() -> libc::sigset_t {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `sigfillset` initializes `all`. `pthread_sigmask` fails only for another `how`, so it initializes `before`.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
            before.assume_init()
        }
    }

    /// Prepares the forked child. An error prevents the exec.
    fn before_exec(parent: Pid, pid_pipe: BorrowedFd<'_>, signal_mask: &libc::sigset_t) -> io::Result<()> {
        // Best effort: without it, the command runs anyway.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
        // A parent that died before the call above sends no signal. In a new pid namespace, where the parent is not visible,
        // the pid below would be that of another process for the parent.
        if getppid() != Some(parent) {
            return Err(Errno::SRCH.into());
        }
        // Fits into the empty pipe. Signals to this pid stay pending until the mask is set below.
        rustix::io::write(pid_pipe, &getpid().as_raw_nonzero().get().to_ne_bytes())?;
        for signal in HANDLED {
            reset_handler(signal);
        }
        // SAFETY: the mask is initialized. Signals that are pending take effect here.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, signal_mask, ptr::null_mut()) };
        Ok(())
    }

    /// Sets a signal to its default action, unless it is ignored.
    fn reset_handler(signal: i32) {
        let mut action = MaybeUninit::<libc::sigaction>::uninit();
        // SAFETY: `sigaction` initializes `action` if it succeeds, and the default action is valid for these signals.
        unsafe {
            if libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) == 0
                && action.assume_init().sa_sigaction != libc::SIG_IGN
            {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use std::io::Read;

        use rustix::process::getpid;

        use super::*;

        #[test]
        fn the_command_is_not_executed_if_its_parent_is_gone() {
            for (parent, is_executed) in [(Pid::INIT, false), (getpid(), true)] {
                // On a thread of its own, whose signals are blocked.
                let (mut pid, pid_pipe) = io::pipe().unwrap();
                let spawned = std::thread::spawn(move || {
                    let mut command = Command::new("true");
                    prepare(&mut command, parent, pid_pipe.into());
                    command.status()
                });
                let status = spawned.join().unwrap();
                assert_eq!(status.is_ok_and(|status| status.success()), is_executed, "{parent:?}");
                let length = pid.read_to_end(&mut Vec::new()).unwrap();
                assert_eq!(length, if is_executed { size_of::<i32>() } else { 0 }, "{parent:?}");
            }
        }
    }
}
