use crate::error::Error;

/// What builder and URL say together about a setting. They may both say it, but not two different things.
pub(crate) fn agreed<T: PartialEq>(
    setting: &'static str,
    builder: Option<T>,
    url: Option<T>,
) -> Result<Option<T>, Error> {
    match (builder, url) {
        (Some(builder), Some(url)) if builder != url => Err(Error::bad_setting(
            setting,
            "the builder says something else than the URL, or than the `redis::Client`; leave one of them out",
        )),
        (builder, url) => Ok(builder.or(url)),
    }
}
