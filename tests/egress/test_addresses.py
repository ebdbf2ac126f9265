"""Which addresses are public, at the edges of each special network and through what carries IPv4."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from fumehood_server.egress.addresses import why_not_public
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.promise("S803")


@pytest.mark.parametrize(
    ("special", "beside"),
    [
        ("0.0.0.0", "1.0.0.0"),  # noqa: S104 - an address to judge, not to bind
        ("0.255.255.255", "1.0.0.1"),
        ("10.0.0.0", "9.255.255.255"),
        ("10.255.255.255", "11.0.0.0"),
        ("100.64.0.0", "100.63.255.255"),
        ("100.127.255.255", "100.128.0.0"),
        ("100.100.100.200", "100.128.0.1"),
        ("127.0.0.1", "126.255.255.255"),
        ("127.255.255.255", "128.0.0.0"),
        ("169.254.169.254", "169.253.255.255"),
        ("169.254.0.0", "169.255.0.0"),
        ("172.16.0.0", "172.15.255.255"),
        ("172.31.255.255", "172.32.0.0"),
        ("192.0.0.192", "192.0.1.0"),
        ("192.0.2.1", "192.0.3.0"),
        ("192.88.99.1", "192.88.98.255"),
        ("192.168.0.0", "192.167.255.255"),
        ("192.168.255.255", "192.169.0.0"),
        ("198.18.0.0", "198.17.255.255"),
        ("198.19.255.255", "198.20.0.0"),
        ("198.51.100.7", "198.51.101.0"),
        ("203.0.113.7", "203.0.114.0"),
        ("224.0.0.1", "223.255.255.255"),
        ("239.255.255.255", "8.8.8.8"),
        ("240.0.0.0", "1.1.1.1"),
        ("255.255.255.255", "9.9.9.9"),
        ("168.63.129.16", "168.63.129.17"),
        ("::", "2000::"),
        ("::1", "2606:4700:4700::1111"),
        ("::127.0.0.1", "2a00::1"),
        ("::8.8.8.8", "2a00::8.8.8.8"),
        ("::ffff:0:8.8.8.8", "::ffff:8.8.8.8"),
        ("::ffff:127.0.0.1", "::ffff:1.1.1.1"),
        ("::ffff:169.254.169.254", "::ffff:9.9.9.9"),
        ("64:ff9b::10.0.0.1", "64:ff9b::8.8.8.8"),
        ("64:ff9b::169.254.169.254", "64:ff9b::1.1.1.1"),
        ("64:ff9b:1::8.8.8.8", "64:ff9b::9.9.9.9"),
        ("64:ff9b::1:8.8.8.8", "64:ff9b::8.8.4.4"),
        ("2002:7f00:1::", "2002:808:808::"),
        ("2002:c0a8:101::1", "2002:101:101::1"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:4136::1"),
        ("2001::", "2001:200::"),
        ("2001:1ff:ffff::", "2001:4860:4860::8888"),
        ("2001:db8::1", "2001:db9::1"),
        ("3fff::1", "3fff:1000::1"),
        ("100::1", "2100::1"),
        ("fc00::1", "2c00::1"),
        ("fd00:ec2::254", "2d00:ec2::254"),
        ("fd20:ce::254", "2620:ce::254"),
        ("fe80::1", "2e80::1"),
        ("fec0::1", "2ec0::1"),
        ("ff02::1", "2f02::1"),
        ("4000::1", "3ffe::1"),
        ("5f00::1", "3f00::1"),
        ("2a00::5efe:10.0.0.1", "2a00::5efe:8.8.8.8"),
        ("2a00::200:5efe:127.0.0.1", "2a00::200:5efe:1.1.1.1"),
    ],
)
def test_special_addresses_are_not_public_and_their_neighbours_are(special: str, beside: str) -> None:
    assert why_not_public(ip_address(special))
    assert not why_not_public(ip_address(beside))


@given(st.ip_addresses(v=4))
def test_what_carries_an_ipv4_address_is_judged_by_it(inner: IPv4Address) -> None:
    number = int(inner)
    carriers = [
        IPv6Address((0xFFFF << 32) | number),
        IPv6Address((0x64FF9B << 96) | number),
        IPv6Address((0x2002 << 112) | (number << 80) | 1),
    ]
    assert {bool(why_not_public(each)) for each in carriers} == {bool(why_not_public(inner))}


@given(st.ip_addresses())
def test_nothing_public_is_private_to_the_standard_library(address: IPv4Address | IPv6Address) -> None:
    if address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified:
        assert why_not_public(address)
