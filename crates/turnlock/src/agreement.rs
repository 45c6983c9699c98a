use crate::error::Error;

/// Combines the values of a setting in the builder and in the URL. Fails if they differ.
pub(crate) fn agreed<T: PartialEq>(
    setting: &'static str,
    builder: Option<T>,
    url: Option<T>,
) -> Result<Option<T>, Error> {
    match (builder, url) {
        (Some(builder), Some(url)) if builder != url => Err(Error::bad_setting(
            setting,
            "differs between the builder and the URL; set it in one place only",
        )),
        (builder, url) => Ok(builder.or(url)),
    }
}
