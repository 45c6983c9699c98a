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
            (
                "0",
                "Success. run exits with the exit code of its command; hold with 0 if the lock was held until it was told to release",
            ),
            (
                "1",
                "run, hold: the lock was not acquired; -E sets another code. show --check: the lock is free. unlock: the lock is not held, or is held by another owner. doctor: there are warnings or dangers. status: warning",
            ),
            ("2", "status: critical"),
            ("3", "status: unknown, or usage error"),
            ("64", "Usage error; for status 3"),
            ("65", "The key of this name holds data that is not a lock"),
            ("69", "The store cannot be reached, or did not reply"),
            ("70", "Internal error, or an error of the operating system"),
            ("77", "The store denies access: wrong password or missing permission"),
            ("79", "The lock was lost: run has ended the command, or has not started it; hold exits"),
            ("126", "The command cannot be executed"),
            ("127", "The command was not found"),
            ("128+n", "Signal n ended the command, or ended turnlock while it waited or watched"),
        ],
    },
    Section {
        heading: "ENVIRONMENT",
        entries: &[
            (
                "TURNLOCK_STORE",
                "The store, if neither --store nor --system is given. Empty counts as not set",
            ),
            (
                "TURNLOCK_PASSWORD",
                "The password of the store, if --password-file is not given. Empty counts as not set",
            ),
            (
                "TURNLOCK_NAME, TURNLOCK_OWNER, TURNLOCK_TOKEN",
                "Set for the command of run: the name of the lock, the id of its owner, and the token of a fenced lock",
            ),
            ("NOTIFY_SOCKET", "Set by systemd: hold sends READY=1 there when the lock is held"),
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
            (
                "coproc LOCK { exec turnlock hold nightly; }; read -r held owner <&\"${LOCK[0]}\"",
                "In a bash script: hold the lock until the script ends, or closes ${LOCK[1]}",
            ),
            (
                "turnlock hold --for 10m deploys </dev/null",
                "Hold the lock for ten minutes, or until a signal",
            ),
            ("turnlock ls 'orders:*'", "List locks and their holders"),
            (
                "turnlock watch --sort age",
                "Follow locks in a full-screen view, the longest held first; ? lists the keys",
            ),
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
    for_command_help(" run ")
}

/// Formats the exit codes and the examples of `hold` for its help.
pub(crate) fn for_hold_help() -> String {
    for_command_help(" hold ")
}

/// Formats the exit codes, and the examples that contain `command`.
fn for_command_help(command: &str) -> String {
    let find = |heading: &str| SECTIONS.iter().find(|section| section.heading == heading);
    let examples = find("EXAMPLES").map(|section| format_section(section, |term| term.contains(command)));
    let codes = find("EXIT STATUS").map(|section| format_section(section, |_| true));
    [examples, codes].map(Option::unwrap_or_default).join("\n")
}

fn format_section(section: &Section, is_shown: impl Fn(&str) -> bool) -> String {
    let entries = section.entries.iter().filter(|(term, _)| is_shown(term));
    let entry = |(term, meaning): &(&str, &str)| format!("  {term}\n          {meaning}\n");
    format!("{}:\n{}", section.heading, entries.map(entry).collect::<String>())
}
