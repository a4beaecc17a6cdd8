"""retention: find ended workflows by age, and bodies that no artifact names"""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_index(op.f("ix_workflow_status_updated_at"), "workflow", ["status", "updated_at"])
    op.create_index(op.f("ix_artifact_sha256"), "artifact", ["sha256"])


def downgrade() -> None:
    op.drop_index(op.f("ix_artifact_sha256"), "artifact")
    op.drop_index(op.f("ix_workflow_status_updated_at"), "workflow")
