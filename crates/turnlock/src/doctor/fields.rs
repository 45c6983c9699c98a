use std::collections::HashMap;

/// Names and values from `INFO` or `CONFIG GET`.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(HashMap<String, String>);

impl Fields {
    /// Parses lines of `name:value`, and skips headings.
    pub(super) fn parse(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.trim_end().to_owned())).collect())
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.0.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_info_are_parsed_and_headings_skipped() {
        let info = Fields::parse(
            "# Server\r\nredis_version:7.0.15\r\n\r\n# Memory\r\nmaxmemory:0\r\nexecutable:a:b\r\n",
        );
        assert_eq!(info.get("redis_version"), Some("7.0.15"));
        assert_eq!(info.number("maxmemory"), Some(0));
        assert_eq!(info.get("executable"), Some("a:b"));
        assert_eq!(info.number("redis_version"), None);
    }
}
