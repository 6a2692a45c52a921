use super::*;

#[test]
fn fixed_point_is_exact_in_both_directions() {
    let f = FixedPoint6::from_decimal("16.5").unwrap();
    assert_eq!(serde_json::to_string(&f).unwrap(), "\"16500000\"");
    assert_eq!(f.to_string(), "16.500000");
    assert_eq!(FixedPoint6::from_decimal("0.0000019").unwrap().millionths(), 1);
    assert_eq!(FixedPoint6::from_decimal("3").unwrap().millionths(), 3_000_000);
    for bad in ["", ".", "-1", "1.2.3", "1e3", "9999999999.0", "NaN"] {
        assert!(FixedPoint6::from_decimal(bad).is_err(), "{bad}");
    }
    for bad in ["\"\"", "\"-1\"", "\"1.5\"", "\"1234567890123456\"", "16500000"] {
        assert!(serde_json::from_str::<FixedPoint6>(bad).is_err(), "{bad}");
    }
}

#[test]
fn labels_hold_what_may_stand_on_chain() {
    assert!("NVIDIA A100 80GB".parse::<Label<64>>().is_ok());
    for bad in ["", "a\"b", "a<b", "a\nb", "ü", "a&b"] {
        assert!(bad.parse::<Label<8>>().is_err(), "{bad}");
    }
    assert_eq!(
        "123456789".parse::<Label<8>>(),
        Err(ValueError::TooLong { max: 8 })
    );
    assert_eq!(
        Label::<8>::lossy(" AMD™ <Radeon> Pro ").unwrap().as_str(),
        "AMD Rade"
    );
    assert_eq!(Label::<8>::lossy("™"), None);
}

#[test]
fn text_is_bounded_in_characters_not_bytes() {
    assert!(Text::<4>::try_from("üüüü".to_owned()).is_ok());
    assert!(Text::<4>::try_from("üüüüü".to_owned()).is_err());
    assert_eq!(Text::<4>::cut("üüüüü").unwrap().as_str(), "üüüü");
    assert_eq!(Text::<4>::cut(""), None);
}

#[test]
fn percentages_end_at_100() {
    assert!(Percent::try_from(100).is_ok());
    assert!(Percent::try_from(101).is_err());
    assert_eq!(Percent::saturating(1000).get(), 100);
}
