"""Lets every packet go on, and reads nothing of it: what it costs is what every service in Python costs."""

from segue_service import Service, Verdict, run


class Noop(Service):
    """Lets every packet go on as it is."""

    def packet(self, packet, context):
        return Verdict.ONWARD


if __name__ == "__main__":
    run(Noop)
