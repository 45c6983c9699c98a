use std::collections::HashMap;

/// What INFO or CONFIG says: names and values.
#[derive(Clone, Debug, Default)]
pub(super) struct Info(HashMap<String, String>);

impl Info {
    /// Lines of `name:value`, with headings in between.
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
    fn lines_become_fields() {
        let info = Info::parse(
            "# Server\r\nredis_version:7.0.15\r\n\r\n# Memory\r\nmaxmemory:0\r\nexecutable:a:b\r\n",
        );
        assert_eq!(info.get("redis_version"), Some("7.0.15"));
        assert_eq!(info.number("maxmemory"), Some(0));
        assert_eq!(info.get("executable"), Some("a:b"));
        assert_eq!(info.number("redis_version"), None);
    }
}
