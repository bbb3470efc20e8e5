//! `GET /metrics`: metrics in Prometheus' text format. Needs the admin token.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use hob_agents::claude::BackendFigures;
use hob_sessions::session::SessionFigures;

use crate::counters::Requests;
use crate::error::ErrorBody;
use crate::extract::caller::Admin;
use crate::state::Gateway;

/// The version of the text format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns metrics in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "admin", operation_id = "metrics", security(("token" = [])), responses(
    (status = 200, description = "The figures.", body = String, content_type = "text/plain"),
    (status = 401, description = "Missing or wrong token.", body = ErrorBody),
))]
pub(crate) async fn metrics(State(gateway): State<Arc<Gateway>>, _: Admin) -> impl IntoResponse {
    let pool = gateway.completions.figures();
    let text = render(&gateway.sessions.figures(), &pool, &gateway.requests, gateway.version);
    ([(CONTENT_TYPE, FORMAT)], text)
}

fn render(
    figures: &SessionFigures,
    pool: &BackendFigures,
    requests: &Requests,
    version: &str,
) -> String {
    let mut text = String::new();
    let mut head = |name: &str, kind: &str, help: &str, rows: &[(String, u64)]| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in rows {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    let plain = |value: usize| [(String::new(), value as u64)];
    let version = format!("{{version=\"{version}\"}}");
    head("hob_build_info", "gauge", "Version of this server.", &[(version, 1)]);
    head("hob_sessions_open", "gauge", "Open sessions.", &plain(figures.open));
    head(
        "hob_sessions_busy",
        "gauge",
        "Sessions with a running or queued turn.",
        &plain(figures.busy),
    );
    head("hob_live", "gauge", "Open sessions and runs.", &plain(figures.live));
    head("hob_live_limit", "gauge", "sessions.max_live.", &plain(figures.live_limit));
    head("hob_agents", "gauge", "Agent process trees.", &plain(figures.agents));
    let turns = figures.turns.iter().filter(|(state, _)| state.is_over());
    let turns: Vec<(String, u64)> =
        turns.map(|(state, count)| (format!("{{state=\"{}\"}}", state.as_str()), *count)).collect();
    head("hob_turns_total", "counter", "Turns ended since the start, by state.", &turns);
    let messages = [(String::new(), figures.messages)];
    head("hob_agent_messages_total", "counter", "Agent messages in turns.", &messages);
    if let Some(node) = &figures.node {
        let id = format!("{{node=\"{}\"}}", node.id);
        head("hob_node_info", "gauge", "Id of this node.", &[(id, 1)]);
        head(
            "hob_node_ready",
            "gauge",
            "1 if the node accepts requests.",
            &plain(node.ready.into()),
        );
        let silence = node.silence.as_millis() as usize;
        head(
            "hob_node_silence_milliseconds",
            "gauge",
            "Milliseconds since the last successful heartbeat.",
            &plain(silence),
        );
        let taken = [(String::new(), node.taken)];
        head(
            "hob_sessions_taken_total",
            "counter",
            "Sessions taken over from other nodes.",
            &taken,
        );
    }
    let labelled = |label: &str, value: u64| (format!("{{{label}}}"), value);
    let processes = [
        labelled("state=\"busy\"", pool.busy as u64),
        labelled("state=\"idle\"", pool.idle as u64),
    ];
    head("hob_v1_processes", "gauge", "Processes behind /v1, by state.", &processes);
    let origins = [
        labelled("session=\"warm\"", pool.warm),
        labelled("session=\"seeded\"", pool.seeded),
        labelled("session=\"fresh\"", pool.fresh),
    ];
    head("hob_v1_turns_total", "counter", "Turns behind /v1, by kind of process.", &origins);
    let requests: Vec<(String, u64)> = requests
        .by_class()
        .into_iter()
        .map(|(class, count)| (format!("{{status=\"{class}xx\"}}"), count))
        .collect();
    head("hob_http_requests_total", "counter", "HTTP requests, by status class.", &requests);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use hob_domain::session::TurnState;

    #[test]
    fn every_line_is_well_formed() {
        let figures = SessionFigures {
            open: 2,
            busy: 1,
            live: 3,
            live_limit: 16,
            agents: 2,
            turns: TurnState::ALL.map(|state| (state, 7)),
            messages: 99,
            node: Some(hob_sessions::session::NodeFigures {
                id: hob_domain::NodeId::from_random([7; 16]),
                silence: std::time::Duration::from_millis(1234),
                taken: 5,
                ready: true,
            }),
        };
        let requests = Requests::default();
        requests.count(200);
        requests.count(404);
        let pool = BackendFigures { busy: 1, idle: 2, warm: 9, seeded: 1, fresh: 1 };
        let text = render(&figures, &pool, &requests, "1.2.3");
        assert!(text.contains("\nhob_v1_turns_total{session=\"warm\"} 9\n"), "{text}");
        assert!(text.contains("\nhob_turns_total{state=\"finished\"} 7\n"), "{text}");
        assert!(text.contains("\nhob_http_requests_total{status=\"4xx\"} 1\n"));
        assert!(text.contains("\nhob_node_silence_milliseconds 1234\n"), "{text}");
        assert!(!text.contains("state=\"queued\""), "a queued turn has not ended");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(name.starts_with("hob_") && value.parse::<u64>().is_ok(), "{line}");
        }
    }
}
