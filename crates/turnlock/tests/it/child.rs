use crate::Case;
pub(crate) const CASES: &[Case] = &[];
pub(crate) fn is_child() -> bool {
    false
}
pub(crate) fn main() {}
