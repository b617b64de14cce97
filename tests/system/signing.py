"""A site's configuration of signatures: which peers may bring none, and which CA a home has that is no peer."""

SIGNED = 3  # the first protocol of links with signatures of homes


def speaks(site):
    """The protocol of its links, at most."""
    if site.old:
        return SIGNED - 1
    if "--protocol-max" in site.arguments:
        return int(site.arguments[site.arguments.index("--protocol-max") + 1])
    return int(site.extra.get("link", {}).get("protocol_max", SIGNED))


def of_peer(site, name):
    """Keys of peers.NAME: a link of a release before brings no signature, and knows no such key."""
    if site.old:
        return {}
    there = [speaks(s) for s in site.lab.sites if s.name == name]
    return {"unsigned": "true"} if min([speaks(site), *there]) < SIGNED else {}


def of_model(site, model):
    """Lines of models.NAME."""
    known = {site.of, *(peer.partition(".")[0] for peer in site.peers)}
    return [] if model["home"] in known else [f"    home_ca: {site.lab.pki_dir(model['home']) / 'ca.crt'}"]
