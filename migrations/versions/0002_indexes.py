"""indexes: ended workflows by age, bodies by their artifacts, what an op reserved"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_workflow_status_updated_at"), "workflow", ["status", "updated_at"])
    op.create_index(op.f("ix_artifact_sha256"), "artifact", ["sha256"])
    op.create_index(op.f("ix_op_alias_op_pk"), "op_alias", ["op_pk"])
    op.create_index(
        "ix_op_reserved",
        "op",
        ["reserved_by"],
        sqlite_where=sa.text("reserved_by IS NOT NULL"),
        postgresql_where=sa.text("reserved_by IS NOT NULL"),
    )


def downgrade() -> None:
    op.drop_index("ix_op_reserved", "op")
    op.drop_index(op.f("ix_op_alias_op_pk"), "op_alias")
    op.drop_index(op.f("ix_artifact_sha256"), "artifact")
    op.drop_index(op.f("ix_workflow_status_updated_at"), "workflow")
