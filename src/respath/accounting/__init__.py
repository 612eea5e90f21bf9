"""What a model costs, in closed form: parameters, FLOPs and KV-cache bytes, in plain Python without torch."""

from respath.accounting.account import account
from respath.spec.cost import Account

__all__ = ["Account", "account"]
