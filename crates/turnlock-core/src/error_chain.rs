use std::error::Error;

/// Returns an error and its causes in one line, for people and log lines.
///
/// A cause that the text before it ends with is not repeated.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        source: Option<Box<Layer>>,
    }

    fn layers(texts: &[&'static str]) -> Option<Box<Layer>> {
        let (text, rest) = texts.split_first()?;
        Some(Box::new(Layer { text, source: layers(rest) }))
    }

    #[test]
    fn a_chain_names_each_cause_once() {
        let chain = |texts: &[&'static str]| error_chain(&*layers(texts).expect("an error"));
        assert_eq!(chain(&["no lock"]), "no lock");
        assert_eq!(chain(&["no lock", "no reply", "broken pipe"]), "no lock: no reply: broken pipe");
        assert_eq!(
            chain(&["no lock: no reply", "no reply", "broken pipe"]),
            "no lock: no reply: broken pipe"
        );
    }
}
