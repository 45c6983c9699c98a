use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::arguments::Arguments;
use crate::manual;

/// `turnlock man`: prints the manual page, with a section for each command.
pub(crate) fn man() -> anyhow::Result<ExitCode> {
    io::stdout().write_all(&page()?)?;
    Ok(ExitCode::SUCCESS)
}

fn page() -> io::Result<Vec<u8>> {
    let mut command = Arguments::command();
    command.build();
    let main = Man::new(command.clone()).manual("turnlock");
    let mut page = Vec::new();
    main.render_title(&mut page)?;
    main.render_name_section(&mut page)?;
    main.render_synopsis_section(&mut page)?;
    main.render_description_section(&mut page)?;
    main.render_options_section(&mut page)?;
    for subcommand in command.get_subcommands().filter(|subcommand| subcommand.get_name() != "help") {
        page.extend(command_section(subcommand)?);
    }
    let mut roff = Roff::default();
    for section in manual::SECTIONS {
        roff.control("SH", [section.heading]);
        for (term, meaning) in section.entries {
            roff.control("TP", []);
            roff.text([bold(*term)]);
            roff.text([roman(*meaning)]);
        }
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// The section of one command. Its synopsis, description and options are subsections.
fn command_section(command: &Command) -> io::Result<Vec<u8>> {
    let title = format!("turnlock {}", command.get_name());
    // Global options are listed once, in the main section.
    let own = command.clone().mut_args(|argument| {
        let is_global = argument.is_global_set() || ["help", "version"].contains(&argument.get_id().as_str());
        if is_global { argument.hide(true) } else { argument }
    });
    let man = Man::new(own);
    let mut text = Vec::new();
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    man.render_options_section(&mut text)?;
    let text = String::from_utf8_lossy(&text).replace(".SH ", ".SS ");
    let mut roff = Roff::default();
    roff.control("SH", [title.to_uppercase().as_str()]);
    let mut section = Vec::new();
    roff.to_writer(&mut section)?;
    section.extend(text.into_bytes());
    Ok(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_every_command_option_and_exit_code() {
        let page = String::from_utf8(page().unwrap()).unwrap();
        let plain = page.replace(r"\*(Aq", "'").replace('\\', "");
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name().to_uppercase();
            assert!(plain.contains(&format!(".SH \"TURNLOCK {name}\"")), "{name}: {plain}");
            let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
            for argument in shown.filter_map(clap::Arg::get_long) {
                assert!(plain.contains(&format!("--{argument}")), "{name}: --{argument}");
            }
        }
        for section in manual::SECTIONS {
            assert!(section.entries.iter().all(|(term, _)| plain.contains(term)), "{}", section.heading);
        }
        assert_eq!(
            plain.matches("fB--password-filefR fI<FILE>fR").count(),
            1,
            "once, and not for each command"
        );
    }

    #[test]
    fn the_command_line_definition_is_valid() {
        Arguments::command().debug_assert();
    }
}
