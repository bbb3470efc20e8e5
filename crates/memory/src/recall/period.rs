//! Times in questions: "last week", "in May", "on 3 March 2024". They are hints, not filters: what was
//! done in March may be spoken of in April.

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

/// A time that a question speaks of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    kind: Kind,
    /// How many days around it count too, less and less.
    before: i64,
    after: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// From the first day to the last.
    Days(Date, Date),
    /// A month of any year.
    Month(i8),
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
/// How the month in "in May" begins.
const MONTHS_RUSSIAN: [&str; 12] = [
    "январ",
    "феврал",
    "март",
    "апрел",
    "ма",
    "июн",
    "июл",
    "август",
    "сентябр",
    "октябр",
    "ноябр",
    "декабр",
];
const DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// Words before a month that make it one: "may" and "march" are others as well.
const BEFORE_MONTH: &str =
    " in during since of last this early late mid until from by around before after and ";

impl Period {
    /// 1 within, less around it, else 0.
    pub(crate) fn nearness(&self, ts: Timestamp) -> f64 {
        let day = ts.to_zoned(TimeZone::UTC).date();
        let (from, to) = match self.kind {
            Kind::Days(from, to) => (from, to),
            Kind::Month(month) => {
                let years = [day.year() - 1, day.year(), day.year() + 1];
                let spans = years.into_iter().filter_map(|year| month_of(year, month));
                let near = spans.map(|(from, to)| self.around(day, from, to));
                return near.fold(0.0, f64::max);
            }
        };
        self.around(day, from, to)
    }

    fn around(&self, day: Date, from: Date, to: Date) -> f64 {
        let away = |days: i32, slack: i64| (1.0 - f64::from(days) / (slack as f64 + 1.0)).max(0.0);
        if day < from {
            away(days_between(day, from), self.before)
        } else if day > to {
            away(days_between(to, day), self.after)
        } else {
            1.0
        }
    }

    fn given(from: Date, to: Date) -> Period {
        Period { kind: Kind::Days(from, to), before: 3, after: 14 }
    }

    fn counted(from: Date, to: Date) -> Period {
        Period { kind: Kind::Days(from, to), before: 1, after: 1 }
    }
}

/// The times a question speaks of, asked at `now`.
pub(crate) fn periods(question: &str, now: Timestamp) -> Vec<Period> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let text = question.to_lowercase().replace("mid-", "mid ");
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric() && c != '-').filter(|w| !w.is_empty()).collect();
    let mut found = Vec::new();
    for place in 0..words.len() {
        found.extend(dated(&words, place).or_else(|| relative(&words, place, today)));
    }
    found.extend(far_east(&text, today));
    // The most exact says it; a month is already in a date of that month.
    let exact = found.iter().any(|period: &Period| matches!(period.kind, Kind::Days(..)));
    found.retain(|period| !exact || matches!(period.kind, Kind::Days(..)));
    found
}

/// "3 march 2024", "march 3 2024", "march 2024", "2024-03-03", "in march", "in 2024".
fn dated(words: &[&str], place: usize) -> Option<Period> {
    let word = words[place];
    let word_at = |offset: isize| {
        place.checked_add_signed(offset).and_then(|place| words.get(place)).copied().unwrap_or("")
    };
    if let Ok(day) = word.parse::<Date>()
        && word.len() == 10
    {
        return Some(Period::given(day, day));
    }
    let (before, after) = (word_at(-1), word_at(1));
    if let Some(month) = month(word) {
        let before = if before == "of" { word_at(-2) } else { before };
        if let (Some(day), Some(year)) = (day(before), year(after)) {
            return one_day(year, month, day);
        }
        if let (Some(day), Some(year)) = (day(after), year(word_at(2))) {
            return one_day(year, month, day);
        }
        if let Some(year) = year(after) {
            return month_of(year, month).map(|(from, to)| Period::given(from, to));
        }
        // A day of any year is its month.
        let said =
            BEFORE_MONTH.contains(&format!(" {before} ")) || day(before).or(day(after)).is_some();
        let russian = !word.is_ascii();
        return (said || russian).then_some(Period {
            kind: Kind::Month(month),
            before: 3,
            after: 14,
        });
    }
    let spoken =
        [" in ", " during ", " of ", " since ", " в "].contains(&format!(" {before} ").as_str());
    year(word).filter(|_| spoken).map(|year| Period::given(date(year, 1, 1), date(year, 12, 31)))
}

fn one_day(year: i16, month: i8, day: i8) -> Option<Period> {
    Date::new(year, month, day).ok().map(|day| Period::given(day, day))
}

/// "yesterday", "last week", "this month", "three days ago", "last tuesday".
fn relative(words: &[&str], place: usize, today: Date) -> Option<Period> {
    let word = words[place];
    let after = words.get(place + 1).copied().unwrap_or("");
    let back = |days: i64| today.saturating_sub(days.days());
    let day = |days: i64| Some(Period::counted(back(days), back(days)));
    let monday = back(i64::from(today.weekday().to_monday_zero_offset()));
    match (word, after) {
        ("today" | "сегодня", _) => return day(0),
        ("yesterday" | "вчера", _) => return day(1),
        ("позавчера", _) => return day(2),
        ("last" | "past" | "previous", "week") | ("прошлой", "неделе") => {
            return Some(Period::counted(
                monday.saturating_sub(7.days()),
                monday.saturating_sub(1.day()),
            ));
        }
        ("this", "week") | ("этой", "неделе") => {
            return Some(Period::counted(monday, today));
        }
        ("last" | "past" | "previous", "month") | ("прошлом", "месяце") => {
            return month_before(today, 1);
        }
        ("this", "month") | ("этом", "месяце") => {
            return Some(Period::counted(today.first_of_month(), today));
        }
        ("last" | "previous", "year") | ("прошлом", "году") => {
            let year = today.year() - 1;
            return Some(Period::counted(date(year, 1, 1), date(year, 12, 31)));
        }
        ("this", "year") | ("этом", "году") => {
            return Some(Period::counted(today.first_of_year(), today));
        }
        _ => {}
    }
    if word == "last"
        && let Some(wanted) = DAYS.iter().position(|name| *name == after)
    {
        let ago = (i64::from(today.weekday().to_monday_zero_offset()) - wanted as i64 + 6) % 7 + 1;
        return day(ago);
    }
    if after == "ago" || after == "назад" {
        let count = place.checked_sub(1).and_then(|before| small_number(words[before]))?;
        let (ago, around): (Span, i64) = match word.trim_end_matches('s') {
            "day" | "день" | "дня" | "дней" => (count.days(), 1),
            "week" | "неделю" | "недели" | "недель" => (count.weeks(), 4),
            "month" | "месяц" | "месяца" | "месяцев" => (count.months(), 15),
            "year" | "год" | "года" | "лет" => (count.years(), 90),
            _ => return None,
        };
        let middle = today.saturating_sub(ago);
        let (from, to) =
            (middle.saturating_sub(around.days()), middle.saturating_add(around.days()));
        return Some(Period::counted(from, to.min(today)));
    }
    None
}

/// Chinese and Japanese, which set no blanks.
fn far_east(text: &str, today: Date) -> Option<Period> {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let back = |days: i64| today.saturating_sub(days.days());
    let monday = back(i64::from(today.weekday().to_monday_zero_offset()));
    if has(&["昨天", "昨日"]) {
        return Some(Period::counted(back(1), back(1)));
    }
    if has(&["今天", "今日"]) {
        return Some(Period::counted(today, today));
    }
    if has(&["上周", "上星期", "上个星期", "先週"]) {
        return Some(Period::counted(
            monday.saturating_sub(7.days()),
            monday.saturating_sub(1.day()),
        ));
    }
    if has(&["这周", "本周", "今週"]) {
        return Some(Period::counted(monday, today));
    }
    if has(&["上个月", "上月", "先月"]) {
        return month_before(today, 1);
    }
    if has(&["这个月", "本月", "今月"]) {
        return Some(Period::counted(today.first_of_month(), today));
    }
    let number_before = |sign: char| -> Option<(usize, i16)> {
        let at = text.find(sign)?;
        let digits = text[..at].chars().rev().take_while(char::is_ascii_digit).count();
        text[at - digits..at].parse().ok().map(|number| (at, number))
    };
    let (at, month) = number_before('月')?;
    let month = i8::try_from(month).ok().filter(|month| (1..=12).contains(month))?;
    let year = number_before('年').map(|(_, year)| year).filter(|year| (1970..2200).contains(year));
    let rest = &text[at + '月'.len_utf8()..];
    let digits = rest.chars().take_while(char::is_ascii_digit).count();
    let day: Option<i8> =
        rest[..digits].parse().ok().filter(|_| rest[digits..].starts_with(['日', '号']));
    match (year, day) {
        (Some(year), Some(day)) => one_day(year, month, day),
        (Some(year), None) => month_of(year, month).map(|(from, to)| Period::given(from, to)),
        (None, _) => Some(Period { kind: Kind::Month(month), before: 3, after: 14 }),
    }
}

fn month_before(today: Date, months: i64) -> Option<Period> {
    let first = today.first_of_month().saturating_sub(months.months());
    Some(Period::counted(first, first.last_of_month()))
}

fn month_of(year: i16, month: i8) -> Option<(Date, Date)> {
    let first = Date::new(year, month, 1).ok()?;
    Some((first, first.last_of_month()))
}

fn month(word: &str) -> Option<i8> {
    let short = (3..=4).contains(&word.len());
    let named = |name: &&str| *name == word || (short && name.starts_with(word));
    let russian = |name: &&str| {
        let ending = word.strip_prefix(*name);
        ending.is_some_and(|ending| ["", "а", "е", "я", "ь", "й"].contains(&ending)) && word != "ма"
    };
    let place = MONTHS.iter().position(named).or_else(|| MONTHS_RUSSIAN.iter().position(russian));
    place.map(|place| place as i8 + 1)
}

fn day(word: &str) -> Option<i8> {
    let digits = word.trim_end_matches(|c: char| c.is_ascii_lowercase());
    digits.parse().ok().filter(|day| (1..=31).contains(day))
}

fn year(word: &str) -> Option<i16> {
    (word.len() == 4)
        .then(|| word.parse().ok())
        .flatten()
        .filter(|year| (1970..2200).contains(year))
}

fn small_number(word: &str) -> Option<i64> {
    const NAMED: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    let named = match word {
        "a" | "an" => Some(1),
        "couple" | "пару" => Some(2),
        "few" => Some(3),
        _ => NAMED.iter().position(|name| *name == word).map(|number| number as i64),
    };
    named.or_else(|| word.parse().ok()).filter(|number| (0..1000).contains(number))
}

fn days_between(from: Date, to: Date) -> i32 {
    from.until(to).map_or(i32::MAX, |span| span.get_days())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: &str) -> Timestamp {
        format!("{day}T12:00:00Z").parse().unwrap()
    }

    /// How near days are to what a question asked on Wednesday, 20 May 2026 speaks of.
    fn near(question: &str, days: &[&str]) -> Vec<f64> {
        let found = periods(question, at("2026-05-20"));
        let nearest = |day: &&str| {
            let each = found.iter().map(|period| period.nearness(at(day)));
            (each.fold(0.0, f64::max) * 100.0).round() / 100.0
        };
        days.iter().map(nearest).collect()
    }

    #[test]
    fn dates_are_understood() {
        for question in [
            "what happened on 3 March 2024?",
            "the meeting of March 3rd, 2024",
            "log of 2024-03-03",
            "what broke on the 3rd of March, 2024",
            "2024年3月3日",
        ] {
            let days = ["2024-03-03", "2024-03-04", "2024-02-20", "2025-03-03"];
            assert_eq!(near(question, &days), [1.0, 0.93, 0.0, 0.0], "{question}");
        }
        assert_eq!(near("what did we do in March 2024", &["2024-03-31", "2025-03-01"]), [1.0, 0.0]);
        for question in
            ["what did we do in March", "the bug of mid-March", "что было в марте", "3月に何をした"]
        {
            let days = ["2024-03-05", "2025-03-31", "2025-07-31"];
            assert_eq!(near(question, &days), [1.0, 1.0, 0.0], "{question}");
        }
        assert_eq!(near("the plan of 2024", &["2024-12-31", "2023-06-01"]), [1.0, 0.0]);
    }

    #[test]
    fn words_for_times_are_understood() {
        assert_eq!(near("what did we fix yesterday", &["2026-05-19", "2026-05-16"]), [1.0, 0.0]);
        for question in
            ["the bug of last week", "что мы чинили на прошлой неделе", "上周的问题", "先週"]
        {
            assert_eq!(
                near(question, &["2026-05-11", "2026-05-17", "2026-05-20"]),
                [1.0, 1.0, 0.0],
                "{question}"
            );
        }
        assert_eq!(near("last month", &["2026-04-30", "2026-03-20"]), [1.0, 0.0]);
        assert_eq!(near("two weeks ago", &["2026-05-06", "2026-05-20"]), [1.0, 0.0]);
        assert_eq!(near("last tuesday's deploy", &["2026-05-19", "2026-05-12"]), [1.0, 0.0]);
        assert_eq!(near("last wednesday", &["2026-05-13", "2026-05-20"]), [1.0, 0.0]);
    }

    #[test]
    fn other_words_are_no_times() {
        for question in ["may I deploy", "march on", "port 2024", "the second server", "mar a lago"]
        {
            assert!(periods(question, at("2026-05-20")).is_empty(), "{question}");
        }
    }
}
