//! The part of `--help` and of the manual page that is not about options.

/// A section of the manual: its heading, and terms with their meanings.
pub(crate) struct Section {
    pub(crate) heading: &'static str,
    pub(crate) entries: &'static [(&'static str, &'static str)],
}

/// All sections, in order.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        entries: &[
            ("0", "Success. run exits with the exit code of its command"),
            (
                "1",
                "run: the lock was not acquired; -E sets another code. show --check: the lock is free. unlock: the lock is not held, or is held by another owner. doctor: there are warnings or dangers",
            ),
            ("64", "Usage error"),
            ("65", "The key of this name holds data that is not a lock"),
            ("69", "The store cannot be reached, or did not reply"),
            ("70", "Internal error, or an error of the operating system"),
            ("77", "The store denies access: wrong password or missing permission"),
            ("79", "The lock was lost: the running command was ended, or the command was not started"),
            ("126", "The command cannot be executed"),
            ("127", "The command was not found"),
            ("128+n", "Signal n ended the command, or ended turnlock while it waited or watched"),
        ],
    },
    Section {
        heading: "ENVIRONMENT",
        entries: &[
            ("TURNLOCK_STORE", "The store, if neither --store nor --system is given"),
            ("TURNLOCK_PASSWORD", "The password of the store, if --password-file is not given"),
            (
                "TURNLOCK_NAME, TURNLOCK_OWNER, TURNLOCK_TOKEN",
                "Set for the command of run: the name of the lock, the id of its owner, and the token of a fenced lock",
            ),
            (
                "NO_COLOR, CLICOLOR, CLICOLOR_FORCE",
                "Control colours. Colours are used only on a terminal, unless CLICOLOR_FORCE is set",
            ),
        ],
    },
    Section {
        heading: "FILES",
        entries: &[
            (
                "$XDG_STATE_HOME/turnlock/locks",
                "The default store, private to this user; in ~/.local/state if the variable is not set",
            ),
            (
                "$XDG_STATE_HOME/turnlock/locks.clients",
                "One file for each process that uses the default store, which shows whether the process is alive",
            ),
            (
                "/var/lib/turnlock/locks",
                "The store of --system. Its directory belongs to root and group turnlock, with mode 2750",
            ),
        ],
    },
    Section {
        heading: "EXAMPLES",
        entries: &[
            (
                "turnlock run nightly -- ./backup.sh",
                "One backup of this user at a time on this machine; a second one waits",
            ),
            (
                "turnlock --system run nightly -- ./backup.sh",
                "One backup at a time on this machine, of all users",
            ),
            ("turnlock run -n nightly -- ./backup.sh", "A second backup does not wait: it exits with 1"),
            (
                "turnlock --store redis://cache.example run -n -E 0 --at-least 9m report -- ./report.sh",
                "One run per ten minutes across a fleet, from the cron of each machine",
            ),
            ("turnlock ls 'orders:*'", "List locks and their holders"),
            ("turnlock watch --json | jq -c 'select(.locked)'", "Follow locks as they are acquired"),
            (
                "turnlock unlock --force orders:42 --if-owner OWNER --yes",
                "Release a lock by force if this owner still holds it",
            ),
        ],
    },
];

/// Formats all sections for `--help`.
pub(crate) fn for_help() -> String {
    SECTIONS.iter().map(|section| format_section(section, |_| true)).collect::<Vec<_>>().join("\n")
}

/// Formats the exit codes and the examples of `run` for its help.
pub(crate) fn for_run_help() -> String {
    let section = |heading: &str, is_shown: fn(&str) -> bool| {
        let section = SECTIONS.iter().find(|section| section.heading == heading);
        section.map(|section| format_section(section, is_shown)).unwrap_or_default()
    };
    let is_of_run = |term: &str| term.contains(" run ");
    [section("EXAMPLES", is_of_run), section("EXIT STATUS", |_| true)].join("\n")
}

fn format_section(section: &Section, is_shown: impl Fn(&str) -> bool) -> String {
    let entries = section.entries.iter().filter(|(term, _)| is_shown(term));
    let entry = |(term, meaning): &(&str, &str)| format!("  {term}\n          {meaning}\n");
    format!("{}:\n{}", section.heading, entries.map(entry).collect::<String>())
}
