use clap::Args;

/// Options of flock(1) that have no effect here, or that `run` refuses with the reason.
#[derive(Args, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "these are flags")]
pub(crate) struct FlockArguments {
    /// No effect: the command never inherits the lock
    #[arg(short = 'o', long, hide = true)]
    close: bool,
    /// Refused
    #[arg(short, long, hide = true)]
    unlock: bool,
    /// Refused
    #[arg(short = 'F', long, hide = true)]
    no_fork: bool,
    /// Refused
    #[arg(long, hide = true)]
    fcntl: bool,
}

impl FlockArguments {
    /// Why the given options cannot be used, and what to do instead.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        match self {
            Self { unlock: true, .. } => {
                Err("--unlock (-u) is not supported: the lock ends with its command. To release \
                 the lock of another process, use turnlock unlock --force NAME")
            }
            Self { no_fork: true, .. } => {
                Err("--no-fork (-F) is not supported: turnlock stays to renew the lock, and \
                 forwards signals to the command. Leave the option out")
            }
            Self { fcntl: true, .. } => {
                Err("--fcntl is not supported: the lock is a name in a store, and not a lock on a \
                 file. Leave the option out")
            }
            Self { .. } => Ok(()),
        }
    }
}

/// The usage error for a run without a command.
pub(crate) fn without_command(name: &str) -> String {
    // As in `flock 9`, which locks the file of a descriptor for the rest of a script.
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!(
            "{name} is not used as a file descriptor: a lock belongs to a command. Give the commands that need the lock, \
             as in turnlock run NAME -c 'COMMANDS', or hold the lock for the rest of a script with turnlock hold NAME"
        );
    }
    "the command is missing: give it after the name, as in turnlock run NAME -- COMMAND, or as text for the shell, as in \
     turnlock run NAME -c 'COMMANDS'"
        .to_owned()
}
