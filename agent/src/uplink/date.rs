//! The time of an HTTP answer (RFC 9110, section 5.6.7: `Sun, 06 Nov 1994 08:49:37 GMT`). Pure.

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];

/// UNIX seconds; none if it is something else, or before 1970.
pub(super) fn parse(text: &str) -> Option<u64> {
    let mut words = text.strip_suffix(" GMT")?.split(' ');
    words.next()?.strip_suffix(',')?;
    let day: i64 = words.next()?.parse().ok()?;
    let name = words.next()?;
    let month = i64::try_from(MONTHS.iter().position(|m| *m == name)?)
        .ok()?
        .checked_add(1)?;
    let year: i64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':').map(|n| n.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let good = (1970..=9999).contains(&year)
        && (1..=31).contains(&day)
        && (0..24).contains(&hour)
        && (0..60).contains(&minute)
        && (0..=60).contains(&second);
    if !good || words.next().is_some() {
        return None;
    }
    // Days since 1970 by the civil calendar, years beginning in March, so that the leap day is the last.
    let shifted = if month > 2 { year } else { year.checked_sub(1)? };
    let march = (month + 9) % 12;
    let of_year = (153 * march + 2) / 5 + day - 1;
    let days = 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + of_year - 719_468;
    u64::try_from(days * 86_400 + hour * 3600 + minute * 60 + second).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_answer_is_read_or_nothing() {
        for (text, unix) in [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Thu, 29 Feb 2024 23:59:59 GMT", 1_709_251_199),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
            ("Sun, 22 Nov 2026 10:15:00 GMT", 1_795_342_500),
        ] {
            assert_eq!(parse(text), Some(unix), "{text}");
        }
        for bad in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Now 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
