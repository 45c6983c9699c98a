//! `--system`, with a `/var/lib` of its own for each case.

use super::SharedMachine;
use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    the_store_of_the_machine_is_shared_by_root_and_the_group,
    a_missing_directory_of_the_machine_is_reported_with_the_command_to_create_it,
    a_directory_of_the_machine_with_another_mode_or_owner_is_refused,
    the_store_of_the_machine_excludes_another_store,
];

/// `as USER GROUP COMMAND…`, and an empty `/var/lib`.
const SET_UP: &str = "as() { u=$1 g=$2; shift 2; setpriv --reuid $u --regid $g --clear-groups \"$@\"; }
    mount -t tmpfs tmpfs /var/lib && chmod 755 /var/lib;";

const CREATE: &str = "install -d -o root -g 47000 -m 2750 /var/lib/turnlock; $T --system ls;";

async fn script(fixture: Fixture, script: &str) -> String {
    SharedMachine::new(fixture, 0o755).script(&format!("{SET_UP}{script}")).await
}

async fn the_store_of_the_machine_is_shared_by_root_and_the_group(fixture: Fixture) {
    let nested = "$T --system run job as_alice";
    let check = "echo '#!/bin/sh\nexec setpriv --reuid 47001 --regid 47000 --clear-groups '$T' --system run -n -E 99 job \
                 true' >$DIR/as_alice; chmod 755 $DIR/as_alice; PATH=$DIR:$PATH;";
    let output = script(
        fixture,
        &format!(
            "{CREATE} {check} {nested}; echo held $?; $DIR/as_alice; echo free $?
             TURNLOCK_STORE=file:/var/lib/turnlock/locks as 47002 47000 $T show --check job; echo shown $?
             as 47003 47003 $T --system run job true; echo carol $?"
        ),
    )
    .await;
    for line in ["held 99", "free 0", "shown 1", "carol 77"] {
        assert!(output.lines().any(|found| found == line), "{line}: {output}");
    }
    let denied =
        "/var/lib/turnlock: it belongs to root:47000 (mode 2750), and this process runs as user 47003";
    assert!(output.contains(denied), "{output}");
    // With names, the message has the command.
    let output = script(
        Fixture::new(crate::store::Store::File).await,
        "install -d -g daemon -m 2750 /var/lib/turnlock; as games games $T --system ls; echo code $?",
    )
    .await;
    assert!(output.contains("Run `usermod -aG daemon games` as root, and log in again"), "{output}");
    assert!(output.contains("code 77"), "{output}");
}

async fn a_missing_directory_of_the_machine_is_reported_with_the_command_to_create_it(fixture: Fixture) {
    let output = script(
        fixture,
        "$T --system ls; echo code $?; as 47001 47000 $T --system ls; echo code $?; ls -A /var/lib; echo end",
    )
    .await;
    let command = "install -d -o root -g turnlock -m 2750 /var/lib/turnlock";
    assert_eq!(output.matches(command).count(), 2, "{output}");
    assert!(output.matches("code 64").count() == 2 && output.ends_with("code 64\nend\n"), "{output}");
}

async fn a_directory_of_the_machine_with_another_mode_or_owner_is_refused(fixture: Fixture) {
    let output = script(
        fixture,
        "install -d -g 47000 /var/lib/turnlock; for mode in 755 750 2755 2770; do chmod $mode /var/lib/turnlock; $T --system ls; echo code $?; done
             chmod 2750 /var/lib/turnlock; chown 47001 /var/lib/turnlock; $T --system ls; echo code $?
             mv /var/lib/turnlock /var/lib/old; mkdir -m 2750 /var/lib/other; ln -s other /var/lib/turnlock; $T --system ls; echo code $?
             ls -A /var/lib/turnlock/",
    )
    .await;
    assert_eq!((output.matches("code 64").count(), output.lines().count()), (6, 12), "{output}");
    assert!(output.contains("It belongs to user 0 and group 47000, with mode 0755"), "{output}");
    assert!(output.contains("It belongs to user 47001"), "{output}");
}

async fn the_store_of_the_machine_excludes_another_store(fixture: Fixture) {
    let output = script(
        fixture,
        &format!(
            "{CREATE} $T --system --store memory:// ls; echo code $?; $T --store memory:// ls --system; echo code $?
             TURNLOCK_STORE=redis://127.0.0.1:1 $T --system ls; echo environment $?"
        ),
    )
    .await;
    assert_eq!(output.matches("code 64").count(), 2, "{output}");
    assert!(output.contains("environment 0"), "{output}");
}
