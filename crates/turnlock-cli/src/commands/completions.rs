use std::io::Write;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::arguments::{Arguments, CompletionsArguments};

/// `turnlock completions`: prints the completion script of a shell.
pub(crate) fn completions(arguments: &CompletionsArguments) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "turnlock", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}
