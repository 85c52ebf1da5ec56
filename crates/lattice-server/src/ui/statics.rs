//! Stylesheet, script and icon: part of the program, nothing is fetched from elsewhere.

/// A file that is served as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaticFile {
    /// Under `/ui/static/`.
    pub name: &'static str,
    /// Media type.
    pub media_type: &'static str,
    /// Content.
    pub text: &'static str,
}

/// All of them.
pub const FILES: [StaticFile; 3] = [
    StaticFile { name: "lattice.css", media_type: "text/css; charset=utf-8", text: include_str!("static/lattice.css") },
    StaticFile {
        name: "lattice.js",
        media_type: "text/javascript; charset=utf-8",
        text: include_str!("static/lattice.js"),
    },
    StaticFile { name: "icon.svg", media_type: "image/svg+xml", text: include_str!("static/icon.svg") },
];

/// What a browser may do with a page: nothing inline, nothing from elsewhere, no frame around it.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
