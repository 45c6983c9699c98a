//! What `--help` and the manual page say beside the options: one text for both.

/// A part of the manual: its heading, and terms with what they mean.
pub(crate) struct Section {
    pub(crate) heading: &'static str,
    pub(crate) entries: &'static [(&'static str, &'static str)],
}

/// All parts, in their order.
pub(crate) const SECTIONS: &[Section] = &[
    Section {
        heading: "EXIT STATUS",
        entries: &[
            ("0", "Done. For run: the command ended with 0; any other code of its own is ours, too"),
            (
                "1",
                "For run: the lock was not to be had; -E sets another code. For unlock: nobody held it, or another owner. For doctor: there are warnings or dangers",
            ),
            ("64", "Wrong usage"),
            ("65", "The key of this name holds something that is no lock"),
            ("69", "The store cannot be reached, or did not answer"),
            ("70", "A fault of this program, or of the system"),
            ("77", "The store refuses: a wrong password, or a right that is lacking"),
            (
                "79",
                "The lock was lost while the command ran, and the command was ended; or before that, and it was not started",
            ),
            ("126", "The command cannot be executed"),
            ("127", "There is no such command"),
            ("128+n", "Signal n ended the command, or ended turnlock while it waited or watched"),
        ],
    },
    Section {
        heading: "ENVIRONMENT",
        entries: &[
            ("TURNLOCK_STORE", "Where the locks are, when --store is not given"),
            ("TURNLOCK_PASSWORD", "The password of the store, when --password-file is not given"),
            (
                "TURNLOCK_NAME, TURNLOCK_OWNER, TURNLOCK_TOKEN",
                "Set for the command of run: the name of the lock, the id of its owner, and the token of a fenced lock",
            ),
            (
                "NO_COLOR, CLICOLOR, CLICOLOR_FORCE",
                "Whether to use colours. They are used on a terminal only, unless CLICOLOR_FORCE is set",
            ),
        ],
    },
    Section {
        heading: "FILES",
        entries: &[
            (
                "$XDG_STATE_HOME/turnlock/locks",
                "The store when none is named, for this user only; in ~/.local/state when the variable is not set",
            ),
            (
                "$XDG_STATE_HOME/turnlock/locks.clients",
                "Beside it, a file for each process that uses the store, by which its death is seen",
            ),
        ],
    },
    Section {
        heading: "EXAMPLES",
        entries: &[
            (
                "turnlock run nightly -- ./backup.sh",
                "One backup at a time on this machine; a second one waits",
            ),
            ("turnlock run -n nightly -- ./backup.sh", "The second one does not wait: it exits with 1"),
            (
                "turnlock --store redis://cache.example run --at-least 10m report -- ./report.sh",
                "One run in ten minutes over a fleet, from the cron of each machine",
            ),
            ("turnlock ls 'orders:*'", "Who holds what"),
            ("turnlock watch --json | jq -c 'select(.locked)'", "Locks as they are taken"),
            (
                "turnlock unlock --force orders:42 --if-owner OWNER --yes",
                "Take a lock away from one owner, if it still has it",
            ),
        ],
    },
];

/// All parts, for `--help`.
pub(crate) fn for_help() -> String {
    let entry = |(term, meaning): &(&str, &str)| format!("  {term}\n          {meaning}\n");
    let part = |section: &Section| {
        format!("{}:\n{}", section.heading, section.entries.iter().map(entry).collect::<String>())
    };
    SECTIONS.iter().map(part).collect::<Vec<_>>().join("\n")
}
