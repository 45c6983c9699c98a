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
        let (inspections, is_complete) = if let Some(name) = &arguments.name {
            (client.inspect(name).await?.into_iter().collect(), true)
        } else {
            let found = client.find("*", arguments.list.limit).await?;
            (found.items, found.is_complete)
        };
        Ok(Self { locks: LockView::load(client, inspections).await?, is_complete })
    }
}
