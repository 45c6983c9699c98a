use turnlock::{Client, Error};

use crate::arguments::WatchArguments;
use crate::commands::lock_view::LockView;

/// The result of one query: locks in the order of their names, before any filter.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) locks: Vec<LockView>,
    pub(super) is_complete: bool,
}

impl Found {
    pub(super) async fn query(client: &Client, arguments: &WatchArguments) -> Result<Self, Error> {
        if let Some(name) = &arguments.name {
            let lock = LockView::query(client, name).await?;
            let is_used = lock.kind.is_some() || !lock.waiters.is_empty();
            return Ok(Self { locks: is_used.then_some(lock).into_iter().collect(), is_complete: true });
        }
        let found = client.find("*", arguments.list.limit).await?;
        Ok(Self { locks: LockView::load(client, found.items).await?, is_complete: found.is_complete })
    }
}
