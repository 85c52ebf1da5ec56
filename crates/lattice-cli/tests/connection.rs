//! Which server is asked, and which token it is shown.

#![allow(clippy::unwrap_used, reason = "a test stops at what it cannot do")]

mod recorded;

use std::os::unix::fs::PermissionsExt;

use recorded::{Recorded, ok};
use serde_json::json;

const WHOAMI: &str = "GET /api/v1/admin/whoami";

fn server() -> Recorded {
    Recorded::new(&[(WHOAMI, &[ok(json!({"name": "ada", "role": "platform_admin"}))])])
}

fn authorization(server: &Recorded) -> Option<String> {
    server.seen().last().and_then(|request| request.header("authorization").map(str::to_owned))
}

fn runtime_file(server: &Recorded, mode: u32) {
    let path = server.home().join("lattice-dev.json");
    let content = json!({"server": server.address(), "token": "lat_api_dev", "pid": 1});
    std::fs::write(&path, content.to_string()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn config(server: &Recorded, text: &str) {
    let folder = server.home().join(".config/lattice");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("config.toml"), text).unwrap();
}

#[test]
fn a_running_dev_server_is_found_by_itself() {
    let server = server();
    runtime_file(&server, 0o600);
    let run = server.lattice_with("token whoami", "", &[]);
    assert_eq!((run.status, authorization(&server).as_deref()), (0, Some("Bearer lat_api_dev")), "{run}");
}

#[test]
fn a_runtime_file_that_others_can_read_is_ignored() {
    let server = server();
    runtime_file(&server, 0o644);
    let run = server.lattice_with("token whoami", "", &[]);
    insta::assert_snapshot!(run);
}

#[test]
fn the_configuration_stands_over_the_runtime_file_and_the_environment_over_both() {
    let server = server();
    runtime_file(&server, 0o600);
    config(&server, &format!("server = \"{}\"\ntoken = \"lat_api_config\"\n", server.address()));
    server.lattice_with("token whoami", "", &[]);
    assert_eq!(authorization(&server).as_deref(), Some("Bearer lat_api_config"));
    server.lattice_with("token whoami", "", &[("LATTICE_TOKEN", "lat_api_environment")]);
    assert_eq!(authorization(&server).as_deref(), Some("Bearer lat_api_environment"));
    let file = server.home().join("token");
    std::fs::write(&file, "lat_api_file\n").unwrap();
    let words = format!("token whoami --token-file {}", file.display());
    server.lattice_with(&words, "", &[("LATTICE_TOKEN", "lat_api_environment")]);
    assert_eq!(authorization(&server).as_deref(), Some("Bearer lat_api_file"));
}

#[test]
fn a_token_is_not_shown_to_another_server() {
    let server = server();
    config(&server, "server = \"https://lattice.example:7070\"\ntoken = \"lat_api_config\"\n");
    let run = server.lattice_with(&format!("token whoami --server {}", server.address()), "", &[]);
    assert_eq!((run.status, authorization(&server)), (0, None), "{run}");
}

#[test]
fn a_server_is_not_asked_in_clear_over_the_network() {
    let server = server();
    let run =
        server.lattice_with("token whoami --server http://lattice.example:7070", "", &[("LATTICE_TOKEN", "lat_api_x")]);
    insta::assert_snapshot!(run);
}

#[test]
fn no_server_is_a_refusal_that_says_how_to_get_one() {
    insta::assert_snapshot!(server().lattice_with("node list", "", &[]));
}

#[test]
fn a_server_that_is_not_there_is_unexpected() {
    let server = server();
    let run = server.lattice_with("node list --server http://127.0.0.1:1", "", &[]);
    insta::assert_snapshot!(run);
}

#[test]
fn a_wrong_command_line_is_status_1_and_help_is_status_0() {
    let server = server();
    assert_eq!(server.lattice_with("node lsit", "", &[]).status, 1);
    let help = server.lattice_with("--help", "", &[]);
    assert_eq!((help.status, help.stderr.as_str()), (0, ""));
    let completion = server.lattice_with("completion bash", "", &[]);
    assert!(completion.status == 0 && completion.stdout.contains("lattice"));
}
