//! The documentation names the versions of the servers that the tests run on.

use libtest_mimic::Trial;
use turnlock_testkit::{RedisServer, ServerProgram};

use crate::trial_of;

const PAGES: [&str; 2] = ["README.md", "docs/redis.md"];

pub(crate) fn trials() -> impl Iterator<Item = Trial> {
    ServerProgram::ALL.into_iter().map(|program| {
        // Outside CI, any version may be installed.
        let is_any_version = program == ServerProgram::Installed && std::env::var_os("CI").is_none();
        let missing = if is_any_version { Some("only with CI set".to_owned()) } else { program.missing() };
        let title = format!("{}::the_docs_name_its_version", program.name());
        trial_of(&title, missing, move || the_docs_name_its_version(program))
    })
}

async fn the_docs_name_its_version(program: ServerProgram) {
    let version = RedisServer::start_of(program).await.version().await;
    for page in PAGES {
        let path = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("the page exists");
        assert!(text.contains(&version), "{page} does not name {version}");
    }
}
