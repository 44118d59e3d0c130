//! Kubernetes quantities as bytes. No I/O.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The quantity as a whole number of bytes, rounded up. `None` if it is not a quantity, or larger than an `i128`
/// can hold.
///
/// ```
/// # use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
/// let bytes = |text: &str| etcd_operator_api::bytes(&Quantity(text.to_owned()));
/// assert_eq!(bytes("1.5Gi"), Some(1_610_612_736));
/// assert_eq!(bytes("1500m"), Some(2));
/// assert_eq!(bytes("one"), None);
/// ```
#[must_use]
pub fn bytes(quantity: &Quantity) -> Option<i128> {
    let text = quantity.0.as_str();
    let (negative, text) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let mantissa: i128 = format!("0{whole}{fraction}").parse().ok()?;
    let decimals = i32::try_from(fraction.len()).ok()?;
    let (binary, exponent) = scale(unit)?;
    // value = mantissa × binary × 10^power
    let power = exponent.checked_sub(decimals)?;
    let scaled = mantissa.checked_mul(binary)?;
    let value = if power >= 0 {
        if scaled == 0 { 0 } else { scaled.checked_mul(pow10(power)?)? }
    } else {
        match pow10(-power) {
            // Towards positive infinity for positive, and away from zero for negative numbers, as Kubernetes rounds.
            Some(divisor) => scaled / divisor + i128::from(scaled % divisor != 0),
            None => i128::from(scaled != 0),
        }
    };
    Some(if negative { -value } else { value })
}

fn pow10(power: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(power).ok()?)
}

/// Binary factor and decimal exponent of a suffix.
fn scale(unit: &str) -> Option<(i128, i32)> {
    Some(match unit {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let exponent = unit.strip_prefix(['e', 'E'])?;
            let exponent = exponent.strip_prefix('+').unwrap_or(exponent);
            (1, exponent.parse().ok()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Option<i128> {
        bytes(&Quantity(text.to_owned()))
    }

    #[test]
    fn every_suffix_means_what_it_means_in_kubernetes() {
        for (text, expected) in [
            ("0", 0),
            ("1073741824", 1 << 30),
            ("1Ki", 1 << 10),
            ("1Mi", 1 << 20),
            ("1Gi", 1 << 30),
            ("1Ti", 1 << 40),
            ("1Pi", 1 << 50),
            ("1Ei", 1 << 60),
            ("1k", 1000),
            ("1M", 1_000_000),
            ("1G", 1_000_000_000),
            ("1T", 1_000_000_000_000),
            ("1P", 1_000_000_000_000_000),
            ("1E", 1_000_000_000_000_000_000),
            ("1e3", 1000),
            ("1E+3", 1000),
            ("1500e-3", 2),
            (".5Gi", 1 << 29),
            ("5.", 5),
            ("100m", 1),
            ("1u", 1),
            ("-1Gi", -(1 << 30)),
            ("+2", 2),
            ("0e999999999", 0),
            ("1e-999999999", 1),
        ] {
            assert_eq!(of(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_quantity_is_none() {
        for text in ["", "-", ".", "Gi", "1 Gi", "1gi", "1.2.3", "one", "1e", "0x10", "--1", "1GiB", "1e99"] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }

    // VC-02
    #[test]
    fn a_bare_number_is_read_as_the_text_of_it() {
        let quantity: Quantity = serde_json::from_str("1073741824").unwrap();
        assert_eq!(bytes(&quantity), Some(1 << 30));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,24}") {
            let _ = of(&text);
        }

        #[test]
        fn order_is_kept(a in 0_i64..i64::MAX, b in 0_i64..i64::MAX) {
            prop_assert_eq!(of(&a.to_string()).cmp(&of(&b.to_string())), a.cmp(&b));
        }
    }
}
