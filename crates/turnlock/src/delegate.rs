/// Declares methods that call the method of the same name on the field `inner`.
///
/// The first word is the type that the documentation refers to. The word before each method says how it is called:
///
/// | word | call | result |
/// |---|---|---|
/// | `get` | as it is | as it is |
/// | `set` | as it is | a handle with another option |
/// | `make` | as it is | its blocking form |
/// | `block` | blocks the thread | as it is |
/// | `wait` | blocks the thread, and can be interrupted | its blocking form |
/// | `own` | as `wait`, with the thread as owner | its blocking form |
macro_rules! delegate {
    ($to:ident: $($(#[$attribute:meta])* $how:ident $method:ident(&$self:ident $(, $argument:ident: $type:ty)*) -> $output:ty;)*) => {$(
        $(#[$attribute])*
        #[doc = ""]
        #[doc = concat!("See [`turnlock::", stringify!($to), "::", stringify!($method), "`](crate::", stringify!($to), "::", stringify!($method), ").")]
        #[track_caller]
        pub fn $method(&$self, $($argument: $type),*) -> $output {
            delegate!(@$how $self $method ($($argument),*))
        }
    )*};
    (@get $self:ident $method:ident $arguments:tt) => { $self.inner.$method $arguments };
    (@set $self:ident $method:ident $arguments:tt) => {
        Self { inner: $self.inner.$method $arguments, bridge: $self.bridge.clone() }
    };
    (@make $self:ident $method:ident $arguments:tt) => {
        $self.inner.$method $arguments.into_blocking(&$self.bridge)
    };
    (@block $self:ident $method:ident $arguments:tt) => {
        $self.bridge.block_on($self.inner.$method $arguments)
    };
    (@wait $self:ident $method:ident $arguments:tt) => {{
        let outcome = $self.bridge.wait($self.name(), $self.inner.$method $arguments);
        outcome.map(|outcome| outcome.into_blocking(&$self.bridge))
    }};
    (@own $self:ident $method:ident $arguments:tt) => {{
        let lock = $self.with_thread_owner();
        let outcome = $self.bridge.wait($self.name(), lock.$method $arguments);
        outcome.map(|outcome| outcome.into_blocking(&$self.bridge))
    }};
}
