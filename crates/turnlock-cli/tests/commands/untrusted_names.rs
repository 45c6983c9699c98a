//! Names and labels with control characters, patterns and extreme lengths.

use crate::fixture::Fixture;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    control_characters_in_names_do_not_break_the_table,
    a_name_that_is_too_long_exits_with_64,
    a_name_is_not_a_pattern,
    control_characters_in_a_label_do_not_break_the_table
];

fn names() -> Vec<String> {
    let long = "x".repeat(4_000);
    [
        "*",
        "a*",
        "[ab]",
        "?",
        "a b",
        "a\nb\r\tc",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{202e}evil",
        "🦀 注文",
        "\\",
        "--json",
        &long,
    ]
    .map(str::to_owned)
    .to_vec()
}

async fn control_characters_in_names_do_not_break_the_table(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let mut guards = Vec::new();
    for name in names() {
        guards.push(client.lock(&name).lock().await.unwrap());
    }
    let listed = fixture.run(&["ls"]).await;
    assert_eq!(listed.out.lines().count(), 1 + guards.len(), "{listed:?}");
    let is_printable = |character: char| !character.is_control() && character != '\u{202e}';
    assert!(listed.out.lines().all(|line| line.chars().all(is_printable)), "{listed:?}");
    let mut listed: Vec<_> = fixture
        .objects(&["ls", "--json"])
        .await
        .iter()
        .map(|object| object["name"].as_str().unwrap().to_owned())
        .collect();
    let mut expected = names();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected, "JSON has the exact names");
}

async fn a_name_is_not_a_pattern(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _other = client.lock("abc").lock().await.unwrap();
    for name in names() {
        let shown = fixture.objects(&["show", "--json", "--", &name]).await;
        assert_eq!(
            (&shown[0]["name"], &shown[0]["locked"]),
            (&name.as_str().into(), &false.into()),
            "{shown:?}"
        );
        let guard = client.lock(&name).lock().await.unwrap();
        let shown = fixture.objects(&["show", "--json", "--", &name]).await;
        assert_eq!(shown[0]["holders"][0]["owner"], guard.owner_id().as_str(), "{shown:?}");
        let ended = fixture.run(&["unlock", "--force", "--yes", "--", &name]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(
            !ended.err.trim_end().contains(|character: char| character.is_control() && character != '\n')
        );
    }
    assert!(client.lock("abc").is_locked().await.unwrap(), "another lock is not unlocked");
}

async fn a_name_that_is_too_long_exits_with_64(fixture: Fixture) {
    let name = "x".repeat(10_000);
    for arguments in [&["show"][..], &["watch"], &["unlock", "--force", "--yes"]] {
        let ended = fixture.run(&[arguments, &[&name]].concat()).await;
        assert_eq!(ended.code, Some(64), "{arguments:?}: {ended:?}");
        assert!(ended.err.len() < 300, "{arguments:?}: {ended:?}");
    }
    let listed = fixture.run(&["ls", &name]).await;
    assert_eq!(
        (listed.code, listed.out.as_str()),
        (Some(0), ""),
        "a pattern has no length limit: {listed:?}"
    );
}

async fn control_characters_in_a_label_do_not_break_the_table(fixture: Fixture) {
    let client = fixture.client("\u{1b}[31mred\n\u{202e}").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    fixture.until_identified(&[&client]).await;
    for arguments in [&["ls"][..], &["show", "orders"]] {
        let shown = fixture.run(arguments).await;
        assert!(shown.out.contains("red"), "{shown:?}");
        assert!(!shown.out.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    }
    assert_eq!(fixture.run(&["ls"]).await.out.lines().count(), 2);
}
