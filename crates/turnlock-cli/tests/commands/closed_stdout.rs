//! A reader that closes the pipe.

use std::process::Stdio;

use tokio::io::AsyncReadExt;

use crate::fixture::Fixture;
use crate::program::code_of;
use crate::{Case, cases};

pub(crate) const CASES: &[Case] = cases![a_closed_pipe_is_not_an_error];

async fn a_closed_pipe_is_not_an_error(fixture: Fixture) {
    let client = fixture.client("holder").await;
    let _guard = client.lock("orders").lock().await.unwrap();
    for arguments in [
        &["ls"][..],
        &["ls", "--json"],
        &["show", "orders"],
        &["watch", "--json"],
        &["doctor"],
        &["acl"],
        &["man"],
        &["completions", "bash"],
        &["bench", "--time", "0.05"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = fixture.program(arguments).printing_to(writer, Stdio::piped()).start();
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
        assert_eq!((code_of(child).await, err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
