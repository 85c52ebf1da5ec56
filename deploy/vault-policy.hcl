# What Lattice may do in Vault: `vault policy write lattice deploy/vault-policy.hcl`.
# `kv` is secrets.vault_mount, a key-value store of version 2. docs/guides/vault.md sets it up step by step.

# API tokens, BMC logins and deploy passwords of sites.
path "kv/data/maas-sites/*" {
  capabilities = ["create", "read", "update"]
}
path "kv/data/lxd-sites/*" {
  capabilities = ["create", "read", "update"]
}

# The keys that sign what webhooks send.
path "kv/data/webhooks/*" {
  capabilities = ["create", "read", "update"]
}

# What is kept for one machine's enrolment, until it is used.
path "kv/data/jobs/*" {
  capabilities = ["create", "read", "update"]
}

# The installation's certificate authority and its signing key.
path "kv/data/lattice/*" {
  capabilities = ["create", "read", "update"]
}

# Deleting goes by the metadata: no version stays behind.
path "kv/metadata/maas-sites/*" {
  capabilities = ["delete"]
}
path "kv/metadata/lxd-sites/*" {
  capabilities = ["delete"]
}
path "kv/metadata/webhooks/*" {
  capabilities = ["delete"]
}
path "kv/metadata/jobs/*" {
  capabilities = ["delete"]
}

# Its own login; the policy `default` allows the same.
path "auth/token/lookup-self" {
  capabilities = ["read"]
}
path "auth/token/renew-self" {
  capabilities = ["update"]
}
