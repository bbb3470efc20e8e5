//! Periods in questions: "last week", "in May", "on 3 March 2024". They are hints, not filters: a
//! turn of April may tell what was done in March.

use jiff::civil::{Date, date};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};

/// A period that a question asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Period {
    span: PeriodSpan,
    /// How many days before the period count as well, less and less.
    days_before: i64,
    /// How many days after the period count as well, less and less.
    days_after: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PeriodSpan {
    /// From the first day to the last, inclusive.
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
/// The stems of the Russian months, as in "in May".
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
const WEEKDAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
/// Words after which "may" and "march" are months.
const BEFORE_MONTH: &str =
    " in during since of last this early late mid until from by around before after and ";

impl Period {
    /// Returns 1 for a time within the period, less around it, else 0.
    pub(crate) fn nearness(&self, ts: Timestamp) -> f64 {
        let day = ts.to_zoned(TimeZone::UTC).date();
        let (from, to) = match self.span {
            PeriodSpan::Days(from, to) => (from, to),
            PeriodSpan::Month(month) => {
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
            away(days_between(day, from), self.days_before)
        } else if day > to {
            away(days_between(to, day), self.days_after)
        } else {
            1.0
        }
    }

    /// A period given by date. People mention the date of an event for some time after it.
    fn dated(from: Date, to: Date) -> Period {
        Period { span: PeriodSpan::Days(from, to), days_before: 3, days_after: 14 }
    }

    /// A period relative to today, such as "yesterday".
    fn relative(from: Date, to: Date) -> Period {
        Period { span: PeriodSpan::Days(from, to), days_before: 1, days_after: 1 }
    }

    /// A month of any year.
    fn any_year(month: i8) -> Period {
        Period { span: PeriodSpan::Month(month), days_before: 3, days_after: 14 }
    }
}

/// Returns the periods that a question asks for, asked at `now`.
pub(crate) fn periods(question: &str, now: Timestamp) -> Vec<Period> {
    let today = now.to_zoned(TimeZone::UTC).date();
    let text = question.to_lowercase().replace("mid-", "mid ");
    let words: Vec<&str> =
        text.split(|c: char| !c.is_alphanumeric() && c != '-').filter(|w| !w.is_empty()).collect();
    let mut found = Vec::new();
    for index in 0..words.len() {
        found.extend(dated(&words, index).or_else(|| relative(&words, index, today)));
    }
    found.extend(chinese_or_japanese(&text, today));
    // An exact date decides; the month of a date is found as well.
    let exact = found.iter().any(|period: &Period| matches!(period.span, PeriodSpan::Days(..)));
    found.retain(|period| !exact || matches!(period.span, PeriodSpan::Days(..)));
    found
}

/// "3 march 2024", "march 3 2024", "march 2024", "2024-03-03", "in march", "in 2024".
fn dated(words: &[&str], index: usize) -> Option<Period> {
    let word = words[index];
    let word_at = |offset: isize| {
        index.checked_add_signed(offset).and_then(|index| words.get(index)).copied().unwrap_or("")
    };
    if let Ok(day) = word.parse::<Date>()
        && word.len() == 10
    {
        return Some(Period::dated(day, day));
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
            return month_of(year, month).map(|(from, to)| Period::dated(from, to));
        }
        // A day without a year stands for its month.
        let is_month =
            BEFORE_MONTH.contains(&format!(" {before} ")) || day(before).or(day(after)).is_some();
        let russian = !word.is_ascii();
        return (is_month || russian).then_some(Period::any_year(month));
    }
    let spoken =
        [" in ", " during ", " of ", " since ", " в "].contains(&format!(" {before} ").as_str());
    year(word).filter(|_| spoken).map(|year| Period::dated(date(year, 1, 1), date(year, 12, 31)))
}

fn one_day(year: i16, month: i8, day: i8) -> Option<Period> {
    Date::new(year, month, day).ok().map(|day| Period::dated(day, day))
}

/// "yesterday", "last week", "this month", "three days ago", "last tuesday".
fn relative(words: &[&str], index: usize, today: Date) -> Option<Period> {
    let word = words[index];
    let after = words.get(index + 1).copied().unwrap_or("");
    let back = |days: i64| today.saturating_sub(days.days());
    let day = |days: i64| Some(Period::relative(back(days), back(days)));
    let monday = back(i64::from(today.weekday().to_monday_zero_offset()));
    match (word, after) {
        ("today" | "сегодня", _) => return day(0),
        ("yesterday" | "вчера", _) => return day(1),
        ("позавчера", _) => return day(2),
        ("last" | "past" | "previous", "week") | ("прошлой", "неделе") => {
            return Some(Period::relative(
                monday.saturating_sub(7.days()),
                monday.saturating_sub(1.day()),
            ));
        }
        ("this", "week") | ("этой", "неделе") => {
            return Some(Period::relative(monday, today));
        }
        ("last" | "past" | "previous", "month") | ("прошлом", "месяце") => {
            return month_before(today, 1);
        }
        ("this", "month") | ("этом", "месяце") => {
            return Some(Period::relative(today.first_of_month(), today));
        }
        ("last" | "previous", "year") | ("прошлом", "году") => {
            let year = today.year() - 1;
            return Some(Period::relative(date(year, 1, 1), date(year, 12, 31)));
        }
        ("this", "year") | ("этом", "году") => {
            return Some(Period::relative(today.first_of_year(), today));
        }
        _ => {}
    }
    if word == "last"
        && let Some(weekday) = WEEKDAYS.iter().position(|name| *name == after)
    {
        let ago = (i64::from(today.weekday().to_monday_zero_offset()) - weekday as i64 + 6) % 7 + 1;
        return day(ago);
    }
    if after == "ago" || after == "назад" {
        let count = index.checked_sub(1).and_then(|before| small_number(words[before]))?;
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
        return Some(Period::relative(from, to.min(today)));
    }
    None
}

/// Periods in Chinese and Japanese, which have no spaces between words.
fn chinese_or_japanese(text: &str, today: Date) -> Option<Period> {
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let back = |days: i64| today.saturating_sub(days.days());
    let monday = back(i64::from(today.weekday().to_monday_zero_offset()));
    if has(&["昨天", "昨日"]) {
        return Some(Period::relative(back(1), back(1)));
    }
    if has(&["今天", "今日"]) {
        return Some(Period::relative(today, today));
    }
    if has(&["上周", "上星期", "上个星期", "先週"]) {
        return Some(Period::relative(
            monday.saturating_sub(7.days()),
            monday.saturating_sub(1.day()),
        ));
    }
    if has(&["这周", "本周", "今週"]) {
        return Some(Period::relative(monday, today));
    }
    if has(&["上个月", "上月", "先月"]) {
        return month_before(today, 1);
    }
    if has(&["这个月", "本月", "今月"]) {
        return Some(Period::relative(today.first_of_month(), today));
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
        (Some(year), None) => month_of(year, month).map(|(from, to)| Period::dated(from, to)),
        (None, _) => Some(Period::any_year(month)),
    }
}

fn month_before(today: Date, months: i64) -> Option<Period> {
    let first = today.first_of_month().saturating_sub(months.months());
    Some(Period::relative(first, first.last_of_month()))
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
    let index = MONTHS.iter().position(named).or_else(|| MONTHS_RUSSIAN.iter().position(russian));
    index.map(|index| index as i8 + 1)
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

    /// Returns the nearness of days to the periods of a question asked on Wednesday, 20 May 2026.
    fn near(question: &str, days: &[&str]) -> Vec<f64> {
        let found = periods(question, at("2026-05-20"));
        let nearest = |day: &&str| {
            let each = found.iter().map(|period| period.nearness(at(day)));
            (each.fold(0.0, f64::max) * 100.0).round() / 100.0
        };
        days.iter().map(nearest).collect()
    }

    #[test]
    fn dates_are_periods() {
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
    fn relative_times_are_periods() {
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
    fn ambiguous_words_are_not_periods() {
        for question in ["may I deploy", "march on", "port 2024", "the second server", "mar a lago"]
        {
            assert!(periods(question, at("2026-05-20")).is_empty(), "{question}");
        }
    }
}
