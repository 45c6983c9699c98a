//! The files of the page. They contain no data of the store.

/// A file: its path, its type and its text.
pub(super) type Asset = (&'static str, &'static str, &'static str);

macro_rules! asset {
    ($path:literal, $file:literal, $media_type:literal) => {
        ($path, concat!($media_type, "; charset=utf-8"), include_str!(concat!("page/", $file)))
    };
}

pub(super) const ASSETS: &[Asset] = &[
    asset!("/", "index.html", "text/html"),
    asset!("/icon.svg", "icon.svg", "image/svg+xml"),
    asset!("/page.css", "page.css", "text/css"),
    asset!("/page.js", "page.js", "text/javascript"),
    asset!("/clients.js", "clients.js", "text/javascript"),
    asset!("/connection.js", "connection.js", "text/javascript"),
    asset!("/doctor.js", "doctor.js", "text/javascript"),
    asset!("/dom.js", "dom.js", "text/javascript"),
    asset!("/graph.js", "graph.js", "text/javascript"),
    asset!("/list.js", "list.js", "text/javascript"),
    asset!("/lock.js", "lock.js", "text/javascript"),
    asset!("/model.js", "model.js", "text/javascript"),
    asset!("/plot.js", "plot.js", "text/javascript"),
    asset!("/text.js", "text.js", "text/javascript"),
    asset!("/unlock.js", "unlock.js", "text/javascript"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_no_inline_code_and_inserts_text_only() {
        for (path, _, text) in ASSETS {
            // Each of them turns text into markup or code.
            for word in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
            {
                assert!(!text.contains(word), "{path} has {word}");
            }
            let text = text.replace("http://www.w3.org/2000/svg", "");
            assert!(
                !text.contains("http://") && !text.contains("https://"),
                "{path} has an external address"
            );
        }
        let (_, _, html) = ASSETS[0];
        for word in ["<style", "style=", " onclick", " onload", "javascript:"] {
            assert!(!html.contains(word), "{word}");
        }
        assert_eq!(html.matches("<script").count(), html.matches("<script type=\"module\" src=\"/").count());
    }
}
