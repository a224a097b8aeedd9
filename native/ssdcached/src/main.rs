//! `diffcache-ssdcached`: see the library.

use std::process::ExitCode;

use diffcache_base::logging;
use diffcache_ssdcached::config::Config;
use diffcache_ssdcached::{guest, guests, panics, service};

const USAGE: &str = "Usage: diffcache-ssdcached serve CONFIG
       diffcache-ssdcached --version

Serves volumes behind a cache on an SSD over NBD. \"diffcache ssdcache serve\" and
\"diffcache-ssdcache\" start it, with the configuration (JSON).

DIFFCACHE_LOG_LEVEL is the least level of what is logged: error, warn, info
(default) or debug.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.is_empty()
        || arguments
            .iter()
            .any(|word| word == "--help" || word == "-h")
    {
        println!("{USAGE}");
        return ExitCode::from(if arguments.is_empty() { 2 } else { 0 });
    }
    if arguments == ["--version"] {
        println!("diffcache-ssdcached {}", env!("CARGO_PKG_VERSION"));
        return ExitCode::SUCCESS;
    }
    logging::start("diffcache-ssdcached");
    panics::end_process();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let [guests::WORD, words @ ..] = &arguments[..] {
        return match guest::run(words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                log::warn!("{error}");
                ExitCode::FAILURE
            }
        };
    }
    let ["serve", config] = arguments[..] else {
        log::error!("unknown arguments (see diffcache-ssdcached --help)");
        return ExitCode::from(2);
    };
    match Config::parse(config).and_then(service::run) {
        Ok(never) => match never {},
        Err(error) => {
            log::error!("{error}");
            ExitCode::FAILURE
        }
    }
}
