//! `turnlock run`: a command under a lock.

mod countdown;
mod event;
#[cfg_attr(not(target_os = "linux"), path = "no_family.rs")]
mod family;
mod grant;
mod one_run;
mod run_lease;
mod running_command;
mod scribe;
mod signals;
mod starter;
mod supervisor;
mod voice;
mod waiting_line;
mod wanted;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::CommandFactory;
use clap::error::ErrorKind;

use crate::arguments::{Arguments, StoreArguments};
use crate::run_arguments::RunArguments;
use crate::{exit_code, store};
use one_run::OneRun;
use run_lease::RunLease;
pub(crate) use starter::take_over;
use voice::Voice;

/// The longest time for which a lock can be kept: ten years.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// Runs a command under a lock. The exit code says how that went.
pub(crate) async fn run(place: &StoreArguments, arguments: RunArguments) -> anyhow::Result<ExitCode> {
    let name = match checked_name(place, &arguments) {
        Ok(name) => name,
        Err(error) => return Ok(exit_code::of_usage(&error)),
    };
    let voice = Voice::new(name, &arguments)?;
    let run = OneRun { name, arguments: &arguments, voice: &voice, began: Instant::now() };
    let code = run.perform(place).await.unwrap_or_else(|error| {
        voice.fail(&error);
        exit_code::code_of(&error)
    });
    voice.finish().await;
    Ok(ExitCode::from(code))
}

/// The name of the lock, if it can be one, and there can be one.
fn checked_name<'a>(place: &StoreArguments, arguments: &'a RunArguments) -> Result<&'a str, clap::Error> {
    let wrong = |text: &str| {
        let mut program = Arguments::command();
        program.build();
        let run = program.find_subcommand_mut("run").expect("it was asked for");
        run.error(ErrorKind::ValueValidation, text)
    };
    if store::is_memory(place) {
        return Err(wrong(
            "a lock in memory:// would end with this program and exclude nobody: use file:PATH for the processes of \
             this machine, or redis:// for those of many",
        ));
    }
    if arguments.at_least.is_some_and(|time| time > LONGEST) {
        return Err(wrong("--at-least is more than ten years, for which no lock can be held"));
    }
    if let Err(text) = RunLease::of(arguments).check(arguments) {
        return Err(wrong(&text));
    }
    arguments.name.to_str().ok_or_else(|| {
        wrong("the name of the lock is not UTF-8: use another one, for example a digest of it (sha256sum)")
    })
}
