#!/bin/sh
# The provider's unit on a machine that has nothing of ours, installed as docs/provider.md says, with a chain key that systemd
# seals and hands over. Each fact is a line that begins with its name; nothing of ours stays.
set -eu
UNIT=virtengine-provider.service
STATE=/var/lib/virtengine/provider
DROP_IN=/etc/systemd/system/$UNIT.d
SEALED=/etc/credstore.encrypted/relayer-2
show() { systemctl show --property "$1" --value $UNIT; }

install -m 755 virtengine-provider /usr/local/bin/
install -m 644 $UNIT /etc/systemd/system/
useradd --system --user-group --no-create-home --home-dir /var/lib/virtengine --shell /usr/sbin/nologin virtengine
virtengine-provider init --hostname localhost --chain-id hpc-1 --contract "$(cat contract)" >/dev/null
chown -R virtengine:virtengine $STATE

# No TPM is here: the host's key seals.
install -d -m 700 /etc/credstore.encrypted
systemd-creds encrypt --name=relayer-2 words $SEALED
systemd-run --quiet --pipe --wait --collect --uid=virtengine -p LoadCredentialEncrypted=relayer-2 \
    virtengine-provider keys add relayer-2 --store credential --key-credential relayer-2 >/dev/null
sed -i 's/^  relayer: .*/  relayer: relayer-2/' $STATE/config.yaml
systemctl daemon-reload
systemctl start $UNIT || true
echo "key-without $(show Result) $(show ExecMainStatus) $(show NRestarts)"

mkdir $DROP_IN
# By translation a start takes its time.
printf '[Service]\nLoadCredentialEncrypted=relayer-2\nTimeoutStartSec=300\n' >$DROP_IN/key.conf
systemctl daemon-reload
systemctl reset-failed $UNIT
# Type=notify: this returns once the daemon says that it is ready.
systemctl start $UNIT || journalctl --unit $UNIT --no-pager --lines 20
address=$(setpriv --reuid virtengine --regid virtengine --clear-groups virtengine-provider keys show relayer-2 --address)
echo "key $(show ActiveState) $(show SubState) $address"
# What holds the words, but for the test's own disk.
holders() {
    grep -rlsF -f words --exclude-dir=payload /etc /run /tmp /usr/local /var /dev/shm /proc/[0-9]*/cmdline /proc/[0-9]*/environ |
        tr '\n' ' '
}
echo "key-in $(holders)"
echo "key-modes $(stat -c %a /run/credentials/$UNIT /run/credentials/$UNIT/relayer-2 | tr '\n' ' ')"
systemctl stop $UNIT
echo "key-left $(holders)"

rm -r $DROP_IN /var/lib/virtengine $SEALED /etc/systemd/system/$UNIT /usr/local/bin/virtengine-provider
systemctl daemon-reload
userdel virtengine
