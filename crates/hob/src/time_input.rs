//! Times on the command line: `yesterday`, `2d`, `2026-11-01`.

use std::time::Duration;

use hob_domain::Timestamp;

/// A date or a time, in a form that the memory's tools accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment(String);

impl Moment {
    /// Reads a date, a time (RFC 3339), `today`, `yesterday`, or how long ago it was: `30m`, `6h`, `2d`, `3w`,
    /// `3 days ago`. Days are
    /// days in UTC.
    pub fn parse(text: &str) -> Result<Moment, String> {
        Moment::parse_at(text, Timestamp::now())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parse_at(text: &str, now: Timestamp) -> Result<Moment, String> {
        let day = |time: Timestamp| time.to_string().chars().take("2026-11-01".len()).collect();
        let days_ago = |days: u64| before(now, days, SECONDS_PER_DAY).map(day).map(Moment);
        let wrong = || {
            format!(
                "{text:?} is neither a date nor a time: use a form such as yesterday, 2d, 6h, 2026-11-01 or 2026-11-01T08:00:00Z"
            )
        };
        let found = match text {
            "today" => days_ago(0),
            "yesterday" => days_ago(1),
            "last week" => days_ago(7),
            _ => match duration(text).or_else(|| duration_in_words(text)) {
                Some((count, unit)) => {
                    before(now, count, unit).map(|time| Moment(time.to_string()))
                }
                None if is_date_or_time(text) => Some(Moment(text.to_owned())),
                None => None,
            },
        };
        found.ok_or_else(wrong)
    }
}

const SECONDS_PER_DAY: u64 = 86_400;

/// Reads a number and the seconds of its unit.
fn duration(text: &str) -> Option<(u64, u64)> {
    let unit = text.chars().next_back()?;
    let seconds = match unit {
        'm' => 60,
        'h' => 3600,
        'd' => SECONDS_PER_DAY,
        'w' => 7 * SECONDS_PER_DAY,
        _ => return None,
    };
    Some((text.strip_suffix(unit)?.parse().ok()?, seconds))
}

/// Reads a duration in words: `3 days ago`, `an hour ago`.
fn duration_in_words(text: &str) -> Option<(u64, u64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [count, unit, "ago"] = words[..] else { return None };
    let seconds = match unit.strip_suffix('s').unwrap_or(unit) {
        "minute" | "min" => 60,
        "hour" => 3600,
        "day" => SECONDS_PER_DAY,
        "week" => 7 * SECONDS_PER_DAY,
        _ => return None,
    };
    let count = if matches!(count, "a" | "an") { 1 } else { count.parse().ok()? };
    Some((count, seconds))
}

fn before(now: Timestamp, count: u64, unit: u64) -> Option<Timestamp> {
    now.checked_sub(Duration::from_secs(count.checked_mul(unit)?)).ok()
}

fn is_date_or_time(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok() || format!("{text}T00:00:00Z").parse::<Timestamp>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read() {
        let now: Timestamp = "2026-11-17T05:00:00Z".parse().unwrap();
        let check = |text: &str, expect: Option<&str>| {
            let found = Moment::parse_at(text, now).ok();
            assert_eq!(found.as_ref().map(Moment::as_str), expect, "{text}");
        };
        check("today", Some("2026-11-17"));
        check("yesterday", Some("2026-11-16"));
        check("2d", Some("2026-11-15T05:00:00Z"));
        check("90m", Some("2026-11-17T03:30:00Z"));
        check("1w", Some("2026-11-10T05:00:00Z"));
        check("3 days ago", Some("2026-11-14T05:00:00Z"));
        check("an hour ago", Some("2026-11-17T04:00:00Z"));
        check("last week", Some("2026-11-10"));
        check("2026-11-01", Some("2026-11-01"));
        check("2026-11-01T08:00:00Z", Some("2026-11-01T08:00:00Z"));
        for wrong in [
            "",
            "d",
            "2y",
            "-2d",
            "soon",
            "3 moons ago",
            "-3 days ago",
            "2026-13-01",
            "99999999999999999999d",
            "999999999999d",
        ] {
            check(wrong, None);
        }
    }
}
