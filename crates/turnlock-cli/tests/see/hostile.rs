//! Names that were made to do harm.

use crate::ground::Ground;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![
    hostile_names_break_no_table,
    a_name_that_is_too_long_is_exit_64,
    a_hostile_name_is_just_that_name,
    a_hostile_label_breaks_no_table
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

async fn hostile_names_break_no_table(ground: Ground) {
    let client = ground.client("holder").await;
    let mut guards = Vec::new();
    for name in names() {
        guards.push(client.lock(&name).lock().await.unwrap());
    }
    let listed = ground.run(&["ls"]).await;
    assert_eq!(listed.out.lines().count(), 1 + guards.len(), "{listed:?}");
    let is_harmless = |character: char| !character.is_control() && character != '\u{202e}';
    assert!(listed.out.lines().all(|line| line.chars().all(is_harmless)), "{listed:?}");
    let mut listed: Vec<_> = ground
        .objects(&["ls", "--json"])
        .await
        .iter()
        .map(|object| object["name"].as_str().unwrap().to_owned())
        .collect();
    let mut expected = names();
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected, "JSON has the names as they are");
}

async fn a_hostile_name_is_just_that_name(ground: Ground) {
    let client = ground.client("holder").await;
    let _other = client.lock("abc").lock().await.unwrap();
    for name in names() {
        let shown = ground.objects(&["show", "--json", "--", &name]).await;
        assert_eq!(
            (&shown[0]["name"], &shown[0]["locked"]),
            (&name.as_str().into(), &false.into()),
            "{shown:?}"
        );
        let guard = client.lock(&name).lock().await.unwrap();
        let shown = ground.objects(&["show", "--json", "--", &name]).await;
        assert_eq!(shown[0]["holders"][0]["owner"], guard.owner_id().as_str(), "{shown:?}");
        let ended = ground.run(&["unlock", "--force", "--yes", "--", &name]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(
            !ended.err.trim_end().contains(|character: char| character.is_control() && character != '\n')
        );
    }
    assert!(client.lock("abc").is_locked().await.unwrap(), "a name is no pattern");
}

async fn a_name_that_is_too_long_is_exit_64(ground: Ground) {
    let name = "x".repeat(10_000);
    for words in [&["show"][..], &["watch"], &["unlock", "--force", "--yes"]] {
        let ended = ground.run(&[words, &[&name]].concat()).await;
        assert_eq!(ended.code, Some(64), "{words:?}: {ended:?}");
        assert!(ended.err.len() < 300, "{words:?}: {ended:?}");
    }
    let listed = ground.run(&["ls", &name]).await;
    assert_eq!(
        (listed.code, listed.out.as_str()),
        (Some(0), ""),
        "a pattern may be as long as it likes: {listed:?}"
    );
}

async fn a_hostile_label_breaks_no_table(ground: Ground) {
    let client = ground.client("\u{1b}[31mred\n\u{202e}").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    ground.until_known(&[&client]).await;
    for arguments in [&["ls"][..], &["show", "orders"]] {
        let shown = ground.run(arguments).await;
        assert!(shown.out.contains("red"), "{shown:?}");
        assert!(!shown.out.contains(['\u{1b}', '\u{202e}']), "{shown:?}");
    }
    assert_eq!(ground.run(&["ls"]).await.out.lines().count(), 2);
}
