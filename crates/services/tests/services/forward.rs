//! `forward`.

use segue_service::Driver;
use segue_service::driver::srv6;

#[test]
fn packets_go_on_as_they_are_but_for_the_segment() {
    let prepared = segue_services::find("forward").unwrap().prepare("", "x").unwrap();
    let mut driver = Driver::prepared(prepared.as_ref(), 2);
    let packets: Vec<_> = (0..100u8).map(|number| srv6(&[number; 100])).collect();
    driver.receive(&packets);
    let mut sent = driver.sent();
    sent.sort_by_key(|sent| sent.octets[80]);
    assert_eq!(sent.len(), 100);
    for (sent, packet) in sent.iter().zip(&packets) {
        assert_eq!(sent.octets[80..], packet[80..]);
        assert_eq!((sent.octets[43], sent.octets[7]), (0, 63));
    }
    driver.stop();
}
